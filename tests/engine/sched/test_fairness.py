"""Tenants share the rows of the steps, whatever each of them has running or waiting."""

from __future__ import annotations

import zlib

import pytest
from branchwise.engine.errors import QueueFullError
from branchwise.engine.protocol import ExtendParams, ScoreParams, SeqId
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.fairness import divided, fair_parts
from branchwise.engine.sched.limits import StepLimits
from branchwise.engine.text.stop import StopRule
from hypothesis import given
from hypothesis import strategies as st
from support.checks import Rig, extend_params
from support.plain import PlainRunner

WINDOW = 200


def plain_rig(num_blocks: int, block_size: int, limits: StepLimits, *, check: bool = False) -> Rig:
    rig = Rig(num_blocks, block_size, limits=limits, check=check)
    rig.runners["policy"] = PlainRunner(num_blocks, block_size)
    return rig


class Load:
    """A tenant that always has `width` requests of `prompt` + `tokens` positions waiting or running."""

    def __init__(self, rig: Rig, tenant: str, *, prompt: int, tokens: int, width: int) -> None:
        self.rig, self.tenant = rig, tenant
        self.prompt, self.tokens, self.width = prompt, tokens, width
        self.made = 0
        self.open: dict[int, SeqId] = {}

    def top_up(self) -> None:
        for request in [request for request in self.open if request in self.rig.outcomes]:
            self.rig.scheduler.release(self.open.pop(request))
        while len(self.open) < self.width:
            self.made += 1
            # the first ids differ between requests and tenants: nothing is found in the cache
            start = [zlib.crc32(self.tenant.encode()) % 23 + 1, self.made % 47 + 1, self.made // 47 % 47 + 1]
            seq = self.rig.open([*start, *[9] * (self.prompt - 3)], seed=self.made, namespace=self.tenant)
            self.open[self.rig.extend(seq, extend_params(self.tokens))] = seq


def rows_by_step(rig: Rig, loads: list[Load], steps: int) -> list[dict[str, int]]:
    """Rows planned for each tenant in each of `steps` steps."""
    history = []
    for _ in range(steps):
        for load in loads:
            load.top_up()
        plan = rig.scheduler.plan()
        assert plan is not None
        rows = {load.tenant: 0 for load in loads}
        for model in plan.models:
            for span in model.spans:
                rows[rig.scheduler.family.sequences[span.seq].tenant] += len(span.tokens)
        history.append(rows)
        rig.finish(plan)
    return history


def smallest_part(history: list[dict[str, int]], tenant: str, skip: int = 0) -> float:
    """The tenant's smallest part of the rows over any window of consecutive steps."""
    parts = []
    for start in range(skip, len(history) - WINDOW + 1):
        window = history[start : start + WINDOW]
        parts.append(sum(rows[tenant] for rows in window) / sum(sum(rows.values()) for rows in window))
    return min(parts)


MANY_DECODES = {"prompt": 4, "tokens": 60, "width": 40}
LONG_PROMPTS = {"prompt": 90, "tokens": 2, "width": 6}
FEW_DECODES = {"prompt": 6, "tokens": 20, "width": 24}


@pytest.mark.parametrize("max_rows", [1, 3, 16, 20])
@pytest.mark.parametrize("first", [MANY_DECODES, LONG_PROMPTS], ids=["decodes", "prompts"])
@pytest.mark.parametrize("second", [LONG_PROMPTS, FEW_DECODES], ids=["prompts", "decodes"])
def test_two_saturating_tenants_get_their_half_of_any_200_steps(
    first: dict[str, int], second: dict[str, int], max_rows: int
) -> None:
    """Running decodes count too: the rows that are planned are shared, not only the places."""
    rig = plain_rig(2000, 4, StepLimits(max_rows=max_rows, max_chunk_rows=max_rows))
    loads = [Load(rig, "a", **first), Load(rig, "b", **second)]
    history = rows_by_step(rig, loads, 450)
    assert all(sum(rows.values()) == max_rows for rows in history)  # nothing is left unused
    assert smallest_part(history, "a") >= 0.45
    assert smallest_part(history, "b") >= 0.45


def test_a_tenant_that_comes_late_gets_its_half_of_a_full_pool() -> None:
    """Rows follow blocks where every sequence has one row per step: who holds the pool gives way."""
    rig = plain_rig(241, 4, StepLimits(max_rows=64))
    early = Load(rig, "early", prompt=10, tokens=60, width=40)
    alone = rows_by_step(rig, [early], 60)
    assert sum(rows["early"] for rows in alone) > 0
    late = Load(rig, "late", prompt=10, tokens=60, width=40)
    history = rows_by_step(rig, [early, late], 3 * WINDOW)
    assert smallest_part(history, "late", skip=WINDOW) >= 0.45
    assert smallest_part(history, "early", skip=WINDOW) >= 0.45


@pytest.mark.parametrize("max_rows", [16, 64])
@pytest.mark.parametrize("small", [(10, 60, 20), (40, 20, 10), (4, 20, 30)], ids=str)
@pytest.mark.parametrize("big", [(144, 20, 3), (192, 20, 2), (132, 4, 2)], ids=str)
def test_prompts_larger_than_their_tenant_s_part_of_the_pool_keep_their_half(
    big: tuple[int, int, int], small: tuple[int, int, int], max_rows: int
) -> None:
    """While the one sequence that fits decodes, its tenant can use one row of a step: the rest of its share
    is carried to its next prompt."""
    rig = plain_rig(61, 4, StepLimits(max_rows=max_rows))
    assert big[0] > 61 * 4 / 2
    loads = [
        Load(rig, name, prompt=prompt, tokens=tokens, width=width)
        for name, (prompt, tokens, width) in (("big", big), ("small", small))
    ]
    history = rows_by_step(rig, loads, 3 * WINDOW)
    for load in loads:
        assert smallest_part(history, load.tenant, skip=WINDOW) >= 0.45, load.tenant


def test_decodes_larger_than_their_tenant_s_part_of_the_pool_cannot_use_half_of_the_rows() -> None:
    """The bound is on rows that a tenant can use. A sequence of 41 of the 60 blocks decodes one row per step,
    and no two of them fit: even with the whole engine for itself the tenant computes fewer rows than 45 % of
    what both do side by side. Beside the other it keeps half of what the whole engine would give it at least.
    """
    load = {"prompt": 20, "tokens": 144, "width": 3}
    alone_rig = plain_rig(61, 4, StepLimits(max_rows=16))
    alone = rows_by_step(alone_rig, [Load(alone_rig, "big", **load)], 3 * WINDOW)[WINDOW:]
    rig = plain_rig(61, 4, StepLimits(max_rows=16))
    loads = [Load(rig, "big", **load), Load(rig, "small", prompt=4, tokens=20, width=30)]
    both = rows_by_step(rig, loads, 3 * WINDOW)[WINDOW:]
    big, small = (sum(rows[tenant] for rows in both) for tenant in ("big", "small"))
    most = sum(rows["big"] for rows in alone)
    assert most < 0.45 * (big + small)
    assert big >= 0.5 * most


def test_rows_that_a_tenant_cannot_use_go_to_the_other() -> None:
    rig = plain_rig(2000, 4, StepLimits(max_rows=32, max_chunk_rows=32))
    loads = [Load(rig, "few", prompt=4, tokens=500, width=2), Load(rig, "many", **LONG_PROMPTS)]
    history = rows_by_step(rig, loads, 60)[10:]
    assert all(rows == {"few": 2, "many": 30} for rows in history)


def test_three_tenants_get_a_third_each() -> None:
    rig = plain_rig(3000, 4, StepLimits(max_rows=16))
    loads = [Load(rig, name, **load) for name, load in (("a", MANY_DECODES), ("b", LONG_PROMPTS))]
    loads.append(Load(rig, "c", **FEW_DECODES))
    history = rows_by_step(rig, loads, 300)
    for load in loads:
        assert smallest_part(history, load.tenant) >= 0.9 / 3


def test_a_tenant_may_span_namespaces_and_a_namespace_tenants() -> None:
    rig = plain_rig(200, 4, StepLimits())
    first = rig.open([1, 2], namespace="a", tenant="one")
    second = rig.open([1, 2], namespace="b")
    [child] = rig.fork(first, [5])
    tenants = [rig.scheduler.family.sequences[seq].tenant for seq in (first, second, child)]
    assert tenants == ["one", "b", "one"]


def test_the_more_urgent_request_of_a_tenant_starts_first() -> None:
    rig = Rig(limits=StepLimits(max_rows=4, max_chunk_rows=4))
    params = ExtendParams(sampling=SamplingParams(), stop=StopRule(), max_tokens=1, order=(9,), priority=1)
    usual = rig.extend(rig.open([1, 2, 3, 4]), extend_params(1))
    urgent = rig.extend(rig.open([5, 6, 7, 8]), params)
    rig.step()
    assert urgent in rig.outcomes
    assert usual not in rig.outcomes
    rig.run()


def test_a_full_queue_refuses_at_once_and_says_the_numbers() -> None:
    rig = Rig(limits=StepLimits(max_rows=1, max_waiting=2))
    accepted = [rig.extend(rig.open([n, 2, 3], namespace="a"), extend_params(2)) for n in (1, 2)]
    seq = rig.open([3, 2, 3], namespace="a")
    refused = [rig.extend(seq, extend_params(2)), rig.score(seq, ScoreParams(logprobs_from=1))]
    other = rig.extend(rig.open([4, 2, 3], namespace="b"), extend_params(2))
    rig.collect()
    for request in refused:
        error = rig.outcomes[request].error
        assert isinstance(error, QueueFullError)
        assert str(error) == "tenant 'a' has 2 requests waiting, the most are 2: try again later"
    rig.run(*accepted, other)
    assert rig.scheduler.counters.refused_requests == 2
    assert rig.extend_now(seq, extend_params(2)).generated == 2


def test_the_queue_of_all_tenants_together_is_bounded_too() -> None:
    rig = Rig(limits=StepLimits(max_rows=1, max_waiting=3, max_waiting_in_all=4))
    tenants = ["a", "b", "c", "d"]
    accepted = [rig.extend(rig.open([n, 2], namespace=t), extend_params(2)) for n, t in enumerate(tenants, 1)]
    refused = rig.extend(rig.open([9, 2], namespace="e"), extend_params(2))
    rig.collect()
    error = rig.outcomes[refused].error
    assert isinstance(error, QueueFullError)
    assert str(error) == "all tenants have 4 requests waiting, the most are 4: try again later"
    rig.run(*accepted)
    assert rig.scheduler.counters.refused_requests == 1
    assert rig.extend_now(rig.open([9, 2], namespace="e"), extend_params(2)).generated == 2


@given(
    rows=st.integers(1, 100),
    demands=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100), min_size=1),
    deficits=st.dictionaries(st.sampled_from("abcd"), st.floats(-100, 100)),
)
def test_no_row_is_lost_and_none_given_twice(
    rows: int, demands: dict[str, int], deficits: dict[str, float]
) -> None:
    shares = divided(rows, demands, deficits)
    assert sum(shares.values()) == min(rows, sum(demands.values()))
    assert all(0 <= shares[tenant] <= demands[tenant] for tenant in demands)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("tenants", [2, 3, 5])
def test_one_decode_each_takes_turns_where_a_step_has_fewer_rows_than_tenants(
    rows: int, tenants: int
) -> None:
    """Whoever got all it wanted in a step pays for it in the next."""
    rig = plain_rig(400, 4, StepLimits(max_rows=rows))
    loads = [Load(rig, f"t{index}", prompt=6, tokens=40, width=1) for index in range(tenants)]
    history = rows_by_step(rig, loads, 400)
    for load in loads:
        for first in range(len(history) - WINDOW):
            window = history[first : first + WINDOW]
            got = sum(step[load.tenant] for step in window)
            assert got >= 0.9 * sum(sum(step.values()) for step in window) / tenants


def test_fair_parts_leave_nobody_less_than_an_equal_part_of_what_it_wants() -> None:
    assert fair_parts(1, {"a": 1, "b": 1}) == {"a": 0.5, "b": 0.5}
    assert fair_parts(10, {"a": 2, "b": 11, "c": 11}) == {"a": 2.0, "b": 4.0, "c": 4.0}
    assert fair_parts(5, {"a": 2, "b": 3}) == {"a": 2.0, "b": 3.0}
