"""The draft length follows what pays."""

import math
import random

import msgspec
import pytest
from branchwise.engine.drafting.adaptive import PROBE_STEPS, RARE_PROBE_STEPS, DraftLength, best_length
from branchwise.engine.drafting.cost import FEWEST, MOST_ROWS, WARM_UP, StepCost, VerifyCost
from branchwise.engine.drafting.params import DraftModel, Ngram, Speculate, Suffix
from branchwise.engine.protocol import EngineUsage, ModelCost
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.scheduler import StepLimits
from support.checks import Rig, extend_params
from support.drafters import HopelessDrafter, HopelessRunner, steer
from support.oracle import oracle_info


def verify(length: DraftLength, k: int, acceptance: float, rng: random.Random) -> None:
    accepted = 0
    while accepted < k and rng.random() < acceptance:
        accepted += 1
    length.learn(k, accepted)


@pytest.mark.parametrize("price", [0.05, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_it_falls_to_zero_within_16_steps_when_nothing_is_accepted(price: float, k: int) -> None:
    length = DraftLength()
    chosen = []
    for _ in range(16):
        chosen.append(length.choose(k, price))
        if chosen[-1]:
            length.learn(chosen[-1], 0)
    assert chosen[0] > 0
    assert chosen[-1] == 0


@pytest.mark.parametrize(("acceptance", "price"), [(0.1, 0.4), (0.2, 0.5), (0.3, 0.7)])
def test_it_falls_to_zero_within_16_steps_below_break_even(acceptance: float, price: float) -> None:
    fell = 0
    for seed in range(200):
        rng, length = random.Random(seed), DraftLength()
        for _ in range(16):
            chosen = length.choose(4, price)
            if chosen == 0:
                fell += 1
                break
            verify(length, chosen, acceptance, rng)
    assert fell >= 196


def test_it_stays_where_drafts_pay() -> None:
    drafting = 0
    for seed in range(50):
        rng, length = random.Random(seed), DraftLength()
        for _ in range(100):
            chosen = length.choose(8, 0.1)
            drafting += chosen > 0
            if chosen:
                verify(length, chosen, 0.7, rng)
    assert drafting >= 0.98 * 50 * 100


def test_it_probes_rarely_and_comes_back() -> None:
    length = DraftLength()
    while length.choose(4, 0.3):
        length.learn(4, 0)
    assert [length.choose(4, 0.3) for _ in range(PROBE_STEPS - 2)] == [0] * (PROBE_STEPS - 2)
    for _ in range(20):
        k = length.choose(4, 0.3)
        if k:
            length.learn(k, k)
    assert length.choose(4, 0.3) == 4


def test_it_probes_very_rarely_where_drafts_seem_dear() -> None:
    """A draft model that was slow when it was first timed is not given up for good."""
    length = DraftLength()
    chosen = [length.choose(4, 1.5) for _ in range(2 * RARE_PROBE_STEPS)]
    assert sum(k > 0 for k in chosen) == 2
    assert chosen[RARE_PROBE_STEPS - 1] > 0


def test_the_best_length_is_zero_exactly_up_to_break_even() -> None:
    for price in (0.05, 0.2, 0.5, 0.9):
        assert best_length(price, price, 8) == 0
        assert best_length(price + 0.01, price, 8) >= 1
    assert best_length(0.9, 0.01, 8) == 8


def test_a_large_batch_is_not_worth_verifying() -> None:
    cost = VerifyCost(fixed_rows=30.0)
    assert cost.marginal(1) == pytest.approx(1 / 31)
    assert DraftLength().choose(4, cost.marginal(1)) == 4
    assert DraftLength().choose(4, cost.marginal(200)) == 0


@pytest.mark.parametrize(
    "method",
    [
        Ngram(k=4),
        Ngram(k=4, verify="ratio"),
        Suffix(k=8),
        Suffix(k=8, width=2),
        Suffix(k=8, verify="ratio"),
        DraftModel(k=4),
        DraftModel(k=4, width=3),
        DraftModel(k=4, verify="ratio"),
    ],
    ids=str,
)
def test_an_engine_stops_drafting_within_16_verifications_where_nothing_is_accepted(
    method: Speculate,
) -> None:
    """For every drafter and either rule; then it only probes."""
    draft = msgspec.structs.replace(oracle_info("draft"), cost=ModelCost(1, 1, 1, 1, 1))
    limits = StepLimits(verify_fixed_rows=30.0)
    rig, usage = Rig(infos=[oracle_info("policy"), draft], limits=limits), EngineUsage()
    rig.runners["draft"] = HopelessRunner(64, 4)
    steer(rig.scheduler.speculation, HopelessDrafter(HopelessRunner.banned))
    seq = rig.open([7] * 9, seed=5, usage=usage)
    sampling = SamplingParams(logit_bias=dict.fromkeys(HopelessRunner.banned, -math.inf))
    request = rig.extend(seq, extend_params(70, sampling=sampling, speculate=method))
    drafted: list[int] = []
    while request not in rig.outcomes:
        policy_steps, before = rig.runners["policy"].steps, usage.draft_tokens
        rig.step()
        if rig.runners["policy"].steps > policy_steps:
            drafted.append(usage.draft_tokens - before)
    assert sum(drafted[:10]) > 0
    assert sum(drafted[17:30]) == 0
    assert sum(count > 0 for count in drafted[17:]) <= 2
    assert usage.accepted_tokens == 0


# What a row costs


ASSUMED = VerifyCost(fixed_rows=30.0)


def timed(fixed_s: float, row_s: float, rows: list[int], *, noise: float = 0.1, steps: int = 400) -> StepCost:
    cost, rng = StepCost(ASSUMED), random.Random(1)
    for _ in range(steps):
        count = rng.choice(rows)
        cost.observe(count, (fixed_s + row_s * count) * rng.uniform(1 - noise, 1 + noise))
    return cost


def test_a_cost_is_what_was_assumed_until_a_step_was_timed() -> None:
    cost = StepCost(ASSUMED)
    assert not cost.known
    assert cost.verify == ASSUMED


@pytest.mark.parametrize(("fixed_s", "row_s"), [(0.016, 0.0004), (0.01, 0.001), (0.004, 0.002)])
def test_fixed_and_row_times_are_told_apart(fixed_s: float, row_s: float) -> None:
    cost = timed(fixed_s, row_s, [4, 16, 20, 32, 80])
    assert cost.verify.fixed_rows == pytest.approx(fixed_s / row_s, rel=0.3)
    for rows in (1, 16, 64):
        assert cost.seconds(rows) == pytest.approx(fixed_s + row_s * rows, rel=0.2)


def test_steps_that_are_all_alike_leave_the_assumed_ratio() -> None:
    cost = timed(0.016, 0.0004, [16])
    assert cost.verify.fixed_rows == pytest.approx(30.0, rel=0.15)
    assert cost.seconds(16) == pytest.approx(0.016 + 0.0064, rel=0.05)


def test_what_held_a_step_up_and_prefills_count_for_nothing() -> None:
    cost = timed(0.016, 0.0004, [4, 16, 32])
    before = cost.verify
    cost.observe(16, 3.0)
    cost.observe(MOST_ROWS + 1, 0.5)
    cost.observe(16, 0.0)
    assert cost.verify == before


def test_the_first_steps_do_not_count() -> None:
    """They load code, and would look like very dear rows."""
    cost = StepCost(ASSUMED)
    for step in range(WARM_UP):
        cost.observe(40 if step == 0 else 1, 3.0)
    for step in range(200):
        rows = 1 + step * 7 % 31
        assert cost.known == (step >= FEWEST)
        cost.observe(rows, 0.01 + 0.001 * rows)
    assert cost.verify.fixed_rows == pytest.approx(10.0, rel=0.3)


def test_a_cost_follows_a_machine_that_changes() -> None:
    cost, rng = timed(0.016, 0.0004, [4, 16, 32]), random.Random(2)
    for _ in range(400):
        rows = rng.choice([4, 16, 32])
        cost.observe(rows, 0.03 + 0.003 * rows)
    assert cost.verify.fixed_rows == pytest.approx(10.0, rel=0.1)


def test_measured_times_change_the_length_of_coupled_drafts_and_not_of_those_for_the_ratio_test() -> None:
    """What the ratio test drafts decides the text, so nothing that a clock says may."""
    for method, changes in ((Ngram(k=4), True), (Ngram(k=4, verify="ratio"), False)):
        drafted = []
        for row_s in (1e-6, 1.0):
            rig, usage = Rig(), EngineUsage()
            steer(rig.scheduler.speculation, HopelessDrafter((3,)))
            seq = rig.open([7] * 9, seed=5, usage=usage)
            request = rig.extend(seq, extend_params(12, speculate=method))
            for rows in (1, 2, 5, 9) * 20:
                rig.scheduler.speculation.costs["policy"].observe(rows, 1e-3 + row_s * rows)
            rig.run(request)
            drafted.append((usage.draft_tokens, tuple(rig.tokens(seq))))
        assert (drafted[0] != drafted[1]) == changes
