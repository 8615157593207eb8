"""Faults injected into the runner: values that are not finite, and memory that runs out."""

from __future__ import annotations

import math

import msgspec
import pytest
from branchwise.engine.errors import NumericsError, StepFailed
from branchwise.engine.protocol import EngineUsage, ScoreParams
from branchwise.engine.sched.limits import StepLimits
from branchwise.engine.sched.plan import ModelPlan, ModelResult
from branchwise.engine.sched.step_budget import RECOVERY_STEPS, StepBudget, is_out_of_memory
from support.checks import Rig, extend_params
from support.oracle import NaiveEngine, OracleRunner, oracle_info
from support.plain import PlainRunner


class SpoilingRunner(OracleRunner):
    """Gives a value that is not finite for the rows of one sequence, once."""

    value = math.nan
    spoils: int | None = None

    def execute(self, plan: ModelPlan) -> ModelResult:
        result = super().execute(plan)
        hit = self.spoils in {drawn.seq for drawn in result.drawn} | {found.seq for found in result.scores}
        if not hit:
            return result
        drawn = tuple(
            msgspec.structs.replace(d, logprob=self.value) if d.seq == self.spoils else d
            for d in result.drawn
        )
        scores = tuple(
            msgspec.structs.replace(
                s, rewards=(self.value,) * len(s.rewards), logprobs=(self.value,) * len(s.logprobs)
            )
            if s.seq == self.spoils
            else s
            for s in result.scores
        )
        self.spoils = None
        return ModelResult(drawn=drawn, scores=scores)


def spoiling_rig(num_blocks: int = 64, head: str = "lm") -> tuple[Rig, SpoilingRunner]:
    rig = Rig(num_blocks, 4, infos=[oracle_info(head=head)])
    runner = SpoilingRunner(num_blocks, 4)
    rig.runners["policy"] = runner
    return rig, runner


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at_step", [0, 3])
def test_a_row_that_is_not_finite_ends_its_own_request(value: float, at_step: int) -> None:
    rig, runner = spoiling_rig()
    runner.value = value
    good, bad = rig.open([1, 2, 3, 4, 5], seed=1), rig.open([6, 2, 3, 4, 5], seed=2)
    requests = [rig.extend(seq, extend_params(6)) for seq in (good, bad)]
    for _ in range(at_step):
        rig.step()
    runner.spoils = bad
    rig.run(*requests)
    error = rig.outcomes[requests[1]].error
    assert isinstance(error, NumericsError)
    assert f"request {requests[1]} on sequence {bad}, at position {4 + at_step}" in str(error)
    assert (
        list(rig.extension(requests[0]).tokens)
        == NaiveEngine.extend([1, 2, 3, 4, 5], 1, extend_params(6), 99)[0]
    )
    rig.extend_now(bad, extend_params(6 - at_step))  # the sequence goes on from what was committed
    assert rig.tokens(bad)[5:] == NaiveEngine.extend([6, 2, 3, 4, 5], 2, extend_params(6), 99)[0]
    counters = rig.scheduler.counters
    assert counters.spoiled_requests == 1
    assert counters.scheduled_rows == counters.rows_by_kind()


def test_kv_of_a_row_that_is_not_finite_is_found_by_nobody() -> None:
    rig, runner = spoiling_rig()
    prompt = list(range(1, 14))
    bad = rig.open(prompt, seed=2)
    request = rig.extend(bad, extend_params(6))
    rig.step()
    runner.spoils = bad
    rig.run(request)
    usage = EngineUsage()
    other = rig.open(prompt, seed=3, usage=usage)
    rig.extend_now(other, extend_params(4))
    assert usage.cached_tokens == 0
    assert rig.tokens(other)[13:] == NaiveEngine.extend(prompt, 3, extend_params(4), 99)[0]
    rig.scheduler.release(bad)
    rig.scheduler.release(other)
    assert rig.pool.owned == 0


def test_siblings_of_a_spoiled_child_go_on() -> None:
    rig, runner = spoiling_rig()
    root = rig.open([1, 2, 3, 4, 5, 6])
    children = rig.fork(root, [1, 2, 3])
    requests = [rig.extend(child, extend_params(5)) for child in children]
    rig.step()
    runner.spoils = children[1]
    rig.run(*requests)
    assert [rig.outcomes[request].error is None for request in requests] == [True, False, True]


def test_a_score_that_is_not_finite_ends_its_own_request() -> None:
    rig, runner = spoiling_rig(head="reward")
    good, bad = rig.open([1, 2, 3]), rig.open([4, 2, 3])
    runner.spoils = bad
    requests = [rig.score(seq, ScoreParams(reward_at=(2,))) for seq in (good, bad)]
    rig.run(*requests)
    assert list(rig.scores(requests[0]).rewards) == NaiveEngine.rewards([1, 2, 3], (2,))
    assert isinstance(rig.outcomes[requests[1]].error, NumericsError)


class FullMemory:
    """Raises out of memory for steps of more than `limit` rows."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seen: list[int] = []

    def __call__(self, plan: ModelPlan) -> None:
        self.seen.append(sum(len(span.tokens) for span in plan.spans))
        if self.seen[-1] > self.limit:
            raise MemoryError("injected: out of memory")


def memory_rig(limit: int) -> tuple[Rig, FullMemory]:
    rig = Rig(400, 4, limits=StepLimits(max_rows=68, max_chunk_rows=68))
    rig.runners["policy"] = PlainRunner(400, 4)
    memory = FullMemory(limit)
    rig.runner.before_step = memory
    return rig, memory


def step_out_of_memory(rig: Rig) -> None:
    plan = rig.scheduler.plan()
    assert plan is not None
    try:
        results = {model.model: rig.runners[model.model].execute(model) for model in plan.models}
    except MemoryError as error:
        rig.scheduler.rollback(plan, {"policy": error})
        results = {}
    rig.scheduler.commit(plan, results)
    rig.collect()


def test_out_of_memory_is_tried_again_with_half_of_the_prefill_rows() -> None:
    rig, memory = memory_rig(limit=60)
    decodes = [rig.extend(rig.open([n, 1]), extend_params(30)) for n in range(1, 5)]
    rig.step()
    prompt = rig.extend(rig.open([9] * 100), extend_params(1))
    while not rig.outcomes.keys() >= {prompt, *decodes}:
        step_out_of_memory(rig)
    assert memory.seen[1:5] == [68, 4 + 32, 4 + 32, 4 + 32]  # decodes keep their rows
    assert all(rig.outcomes[request].error is None for request in (prompt, *decodes))
    counters = rig.scheduler.counters
    assert (counters.failed_steps, counters.retried_steps) == (1, 1)
    assert counters.failed_rows == 68
    assert counters.scheduled_rows == counters.rows_by_kind()


def test_out_of_memory_twice_fails_the_rows_of_the_step() -> None:
    rig, memory = memory_rig(limit=20)
    prompt = rig.extend(rig.open([9] * 100), extend_params(1))
    step_out_of_memory(rig)
    assert prompt not in rig.outcomes
    step_out_of_memory(rig)
    assert memory.seen == [68, 34]
    assert isinstance(rig.outcomes[prompt].error, StepFailed)
    assert rig.pool.owned == 0
    small = rig.extend(rig.open([8] * 10), extend_params(1))
    step_out_of_memory(rig)
    assert rig.outcomes[small].error is None


def test_the_budget_recovers() -> None:
    budget = StepBudget(100)
    assert budget.retry("policy", decodes=4, prefills=96)
    assert budget.rows == 52
    for _ in range(RECOVERY_STEPS):
        budget.succeeded("policy")
    assert budget.rows == 100
    assert budget.retry("policy", decodes=0, prefills=1)
    assert budget.rows == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
