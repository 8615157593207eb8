"""Paired comparisons: golden values, and the share of false alarms and of hits."""

import math

import numpy as np
import pytest
from branchwise.evals.replay.readers import open_recording
from branchwise.evals.statistics.bootstrap import paired_bootstrap
from branchwise.evals.statistics.intervals import Outcomes, standard_error
from branchwise.evals.statistics.paired import compare, holm, mcnemar
from branchwise.evals.statistics.power import (
    Spread,
    power_of,
    problems_needed,
    spread_of,
    visible_gap,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from support.data import data_path

REPLAYED = 2000
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def pair_of(both: int, first: int, second: int, neither: int) -> tuple[Outcomes, Outcomes]:
    """One sample per problem, from the four counts of a paired table."""
    a = [[1.0]] * (both + first) + [[0.0]] * (second + neither)
    b = [[1.0]] * both + [[0.0]] * first + [[1.0]] * second + [[0.0]] * neither
    return a, b


def test_gsm8k_verifier_against_finetuning_has_the_golden_values() -> None:
    a, b = pair_of(both=306, first=209, second=152, neither=652)
    result = compare(a, b)
    paired = standard_error([x[0] - y[0] for x, y in zip(a, b, strict=True)])
    unpaired = math.hypot(*(standard_error([x[0] for x in side]) for side in (a, b)))
    assert result.difference.value == pytest.approx(0.0432, abs=5e-5)
    assert (paired, unpaired) == pytest.approx((0.01436, 0.01878), abs=5e-6)
    assert result.difference.value / paired == pytest.approx(3.009, abs=5e-4)
    assert result.correlation == pytest.approx(0.415, abs=5e-4)
    assert (result.only_first, result.only_second) == (209, 152)
    boot = paired_bootstrap(a, b)
    assert (boot.low, boot.high) == pytest.approx((0.0144, 0.0713), abs=0.002)


def test_mcnemar_has_the_golden_values() -> None:
    assert mcnemar(209, 152) == pytest.approx(0.0027, abs=5e-5)  # chi-squared 9.0
    assert binomtest(209, 361).pvalue == pytest.approx(0.00315, abs=5e-6)
    assert mcnemar(6, 35) < 1e-5
    assert mcnemar(3, 9) == pytest.approx(binomtest(3, 12).pvalue)
    assert mcnemar(0, 0) == 1.0


@given(p_values)
def test_holm_is_monotone_and_lies_between_the_raw_value_and_bonferroni(raw: list[float]) -> None:
    adjusted = holm(raw)
    for p, q in zip(raw, adjusted, strict=True):
        assert p <= q <= min(1.0, len(raw) * p) or q == max(adjusted)
    order = np.argsort(raw, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


def test_holm_of_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_different_problems_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same ones"):
        compare([[1]], [[1], [0]])


def rates() -> np.ndarray:
    """Rates as strategies record them: many problems are nearly always or nearly never solved."""
    return np.random.default_rng(7).beta(0.6, 0.5, 300)


def rejections(first: np.ndarray, second: np.ndarray, samples: int, runs: int = REPLAYED) -> float:
    """Share of replayed pairs of runs whose comparison rejects at 0.05."""
    rng = np.random.default_rng(11)
    rejected = 0
    for _ in range(runs):
        a, b = ((rng.random((len(p), samples)) < p[:, None]).astype(float) for p in (first, second))
        p = compare(a.tolist(), b.tolist()).p
        assert p is not None
        rejected += p < 0.05
    return rejected / runs


@pytest.mark.parametrize("samples", [1, 3])
def test_the_same_strategy_twice_is_told_apart_in_3_to_7_percent(samples: int) -> None:
    assert 0.03 <= rejections(rates(), rates(), samples) <= 0.07


def test_the_recorded_rates_of_a_model_twice_are_told_apart_in_3_to_7_percent() -> None:
    recording = open_recording(data_path("game24_gpt4_logs") / "naive_cot_100.json")
    recorded = np.array([np.mean([c.correct is True for c in p.completions]) for p in recording.problems])
    assert 0.03 <= rejections(recorded, recorded, samples=10) <= 0.07


def test_where_few_samples_disagree_the_exact_test_is_careful() -> None:
    """With single samples of problems that are nearly always solved, false alarms stay below their share."""
    assert rejections(np.full(100, 0.97), np.full(100, 0.97), samples=1, runs=500) < 0.05


@pytest.mark.parametrize("samples", [1, 3])
def test_a_planted_gap_of_5_points_is_found_with_the_computed_power(samples: int) -> None:
    base = rates()
    better = base + 0.05 * 4 * base * (1 - base) / np.mean(4 * base * (1 - base))
    assert (better <= 1).all()
    within = [float((p * (1 - p)).mean()) for p in (better, base)]
    spread = Spread(
        difference=float((better - base).var()),
        within_first=within[0],
        within_second=within[1],
        samples_first=samples,
        samples_second=samples,
    )
    assert float((better - base).mean()) == pytest.approx(0.05)
    assert rejections(better, base, samples) == pytest.approx(power_of(0.05, len(base), spread), abs=0.05)


def test_the_spread_of_two_runs_is_the_one_they_were_drawn_from() -> None:
    rng = np.random.default_rng(3)
    p = rng.beta(1, 1, 3000)
    q = np.clip(p + rng.normal(0, 0.1, 3000), 0, 1)
    a, b = ((rng.random((3000, 4)) < r[:, None]).astype(float) for r in (p, q))
    spread = spread_of(a.tolist(), b.tolist())
    assert spread.within_first == pytest.approx((p * (1 - p)).mean(), abs=0.01)
    assert spread.difference == pytest.approx((p - q).var(), abs=0.01)


@given(st.floats(0.005, 0.3), st.floats(0.01, 0.3), st.integers(1, 8))
def test_power_and_its_inverses_agree(gap: float, variance: float, samples: int) -> None:
    spread = Spread(
        difference=variance / 4,
        within_first=variance,
        within_second=variance,
        samples_first=samples,
        samples_second=samples,
    )
    needed = problems_needed(gap, spread)
    assert power_of(gap, needed, spread) >= 0.799
    if needed > 2:
        assert power_of(gap, needed - 1, spread) < 0.801
        assert visible_gap(needed, spread) <= gap * 1.0001


def test_seeing_two_points_takes_thousands_of_single_samples() -> None:
    spread = Spread(difference=0.0, within_first=0.2, within_second=0.2)
    assert problems_needed(0.02, spread) == 7849
