"""AUROC with clustered intervals, Brier's score and calibration."""

import itertools
import math

import numpy as np
import pytest
from branchwise.evals.statistics.ranking import auroc, brier, calibration, calibration_error
from hypothesis import given
from hypothesis import strategies as st

CANDIDATES = st.lists(
    st.lists(st.tuples(st.integers(0, 4).map(lambda i: i / 4), st.booleans()), max_size=5), max_size=8
)


@given(CANDIDATES)
def test_auroc_is_the_share_of_pairs_in_order(problems: list[list[tuple[float, bool]]]) -> None:
    pool = list(itertools.chain.from_iterable(problems))
    pairs = [(a, b) for a, right in pool if right for b, also in pool if not also]
    found = auroc(problems)
    if not pairs:
        assert found is None
        return
    assert found is not None
    assert found.value == pytest.approx(sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs))
    assert found.low is None or (0 <= found.low <= found.value + 1e-12)
    assert found.high is None or (found.value - 1e-12 <= found.high <= 1)


def test_single_candidates_have_delongs_interval() -> None:
    rng = np.random.default_rng(0)
    right = rng.random(300) < 0.4
    score = rng.normal(right * 0.8, 1)
    found = auroc([[(float(s), bool(r))] for s, r in zip(score, right, strict=True)])
    above = (score[right][:, None] > score[~right][None, :]).astype(float)
    variance = above.mean(1).var(ddof=1) / right.sum() + above.mean(0).var(ddof=1) / (~right).sum()
    assert found is not None
    assert found.low is not None
    assert found.value - found.low == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-6)


def test_the_interval_is_over_problems_not_candidates() -> None:
    rng = np.random.default_rng(1)
    right = rng.random(200) < 0.5
    score = rng.normal(right * 0.7, 1)
    single = auroc([[(float(s), bool(r))] for s, r in zip(score, right, strict=True)])
    copied = auroc([[(float(s), bool(r))] * 9 for s, r in zip(score, right, strict=True)])
    assert single is not None
    assert copied is not None
    assert copied.value == pytest.approx(single.value)
    assert (copied.low, copied.high) == (pytest.approx(single.low), pytest.approx(single.high))


def test_a_perfect_order_has_no_interval_of_width_0() -> None:
    found = auroc([[(0.9, True), (0.1, False)], [(0.8, True)]])
    assert found is not None
    assert (found.value, found.low, found.high) == (1.0, None, None)


def test_calibration_of_true_probabilities_is_near_0_and_of_shifted_ones_is_the_shift() -> None:
    rng = np.random.default_rng(2)
    rate = rng.uniform(0.1, 0.6, 20_000)
    right = rng.random(len(rate)) < rate
    honest = [(float(p), bool(r)) for p, r in zip(rate, right, strict=True)]
    shifted = [(p + 0.3, r) for p, r in honest]
    assert calibration_error(calibration(honest)) == pytest.approx(0, abs=0.02)
    assert calibration_error(calibration(shifted)) == pytest.approx(0.3, abs=0.02)
    assert brier(honest) < brier(shifted)


def test_bins_hold_every_score_once_and_the_ends_too() -> None:
    bins = calibration([(0.0, False), (0.1, True), (0.999, True), (1.0, True), (1.5, True)])
    assert [(b.n, b.right) for b in bins] == [(1, 0.0), (1, 1.0), (2, 1.0)]
    assert all(b.low <= b.right <= b.high for b in bins)
