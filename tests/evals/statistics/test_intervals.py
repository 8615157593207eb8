"""Intervals of rates and means against golden values and closed forms."""

import math

import numpy as np
import pytest
from branchwise.evals.statistics.bootstrap import clustered_bootstrap, hierarchical_bootstrap
from branchwise.evals.statistics.intervals import (
    clustered_error,
    mean_estimate,
    rate_estimate,
    variance_components,
    wilson,
)
from hypothesis import given
from hypothesis import strategies as st

outcomes = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(0, 25, 0, 0.1332), (0, 5000, 0, 0.00077), (15, 30, 0.3315, 0.6685), (30, 30, 0.8865, 1)],
)
def test_wilson_has_the_golden_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(outcomes)
def test_a_rate_lies_in_its_interval_which_is_never_of_width_zero(rows: list[list[int]]) -> None:
    estimate = rate_estimate(rows)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate.high - estimate.low > 0.01


def test_one_sample_per_problem_gives_wilsons_interval() -> None:
    estimate = rate_estimate([[1]] * 15 + [[0]] * 15)
    assert (estimate.low, estimate.high) == wilson(15, 30)


def test_samples_that_repeat_each_other_count_once() -> None:
    once = rate_estimate([[1]] * 40 + [[0]] * 60)
    ten_times = rate_estimate([[1] * 10] * 40 + [[0] * 10] * 60)
    assert once.low is not None
    assert ten_times.low == pytest.approx(once.low, abs=0.002)


def test_the_clustered_error_of_single_samples_is_the_usual_one() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    assert clustered_error([[v] for v in values]) == pytest.approx(np.std(values, ddof=1) / math.sqrt(5))


def test_a_mean_of_one_value_has_no_interval() -> None:
    assert (mean_estimate([3.0]).low, mean_estimate([3.0]).high) == (None, None)


def test_students_interval_of_a_textbook_sample() -> None:
    estimate = mean_estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (estimate.low, estimate.high) == pytest.approx((1.0367, 4.9633), abs=1e-4)


def test_more_samples_per_problem_remove_the_noise_within_problems_only() -> None:
    rng = np.random.default_rng(1)
    rates = rng.beta(0.5, 0.5, 4000)
    truth = rates.var(ddof=1), (rates * (1 - rates)).mean()
    for samples in (2, 8):
        drawn = rng.random((4000, samples)) < rates[:, None]
        parts = variance_components(drawn.tolist())
        assert (parts.between, parts.within) == pytest.approx(truth, abs=0.01)


def test_bootstrap_of_problems_agrees_with_the_clustered_interval() -> None:
    rng = np.random.default_rng(2)
    data = (rng.random((200, 4)) < rng.beta(1, 1, 200)[:, None]).tolist()
    boot, half = clustered_bootstrap(data, resamples=4000), 1.96 * clustered_error(data)
    assert boot.low == pytest.approx(boot.value - half, abs=0.005)
    assert boot.high == pytest.approx(boot.value + half, abs=0.005)


def test_the_hierarchical_bootstrap_is_wider_where_samples_vary_and_equal_where_not() -> None:
    def width(estimate: object) -> float:
        return estimate.high - estimate.low  # pyright: ignore[reportAttributeAccessIssue]

    noisy = [[0, 1], [1, 0]] * 50
    assert width(hierarchical_bootstrap(noisy, resamples=2000)) > 0.05
    assert width(clustered_bootstrap(noisy, resamples=2000)) == 0
    steady = [[0, 0], [1, 1]] * 50
    assert width(hierarchical_bootstrap(steady, resamples=4000)) == pytest.approx(
        width(clustered_bootstrap(steady, resamples=4000)), abs=0.02
    )


def test_ragged_problems_are_refused_where_equal_numbers_are_needed() -> None:
    with pytest.raises(ValueError, match="equally many"):
        hierarchical_bootstrap([[1], [0, 1]])
    with pytest.raises(ValueError, match="equally many"):
        variance_components([[1], [0, 1]])
