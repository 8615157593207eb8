"""The draft length follows what pays."""

import random

import pytest
from branchwise.engine.drafting.adaptive import PROBE_STEPS, DraftLength, best_length
from branchwise.engine.drafting.cost import VerifyCost
from branchwise.engine.drafting.params import Ngram
from branchwise.engine.protocol import EngineUsage
from branchwise.engine.sched.scheduler import StepLimits
from support.checks import Rig, extend_params
from support.drafters import SteeredDrafter, steer


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


def test_an_engine_stops_drafting_within_16_steps() -> None:
    rig, usage = Rig(limits=StepLimits(verify_fixed_rows=30.0)), EngineUsage()
    steer(rig.scheduler.speculation, SteeredDrafter(lambda k: 0))
    seq = rig.open([7] * 9, seed=5, usage=usage)
    request = rig.extend(seq, extend_params(40, speculate=Ngram(k=4)))
    drafted: list[int] = []
    while request not in rig.outcomes:
        before = usage.draft_tokens
        rig.step()
        drafted.append(usage.draft_tokens - before)
    assert sum(drafted[17:32]) == 0
    assert usage.accepted_tokens == 0
