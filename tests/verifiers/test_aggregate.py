"""Aggregation of step scores."""

import pytest
from branchwise.verifiers.aggregate import Aggregation, aggregate
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.pins("search-and-learn")
@pytest.mark.parametrize(
    ("rule", "score"),
    [
        (Aggregation.LAST, 0.8),
        (Aggregation.MIN, 0.2),
        (Aggregation.PROD, 0.144),
        (Aggregation.MEAN, 1.9 / 3),
        (Aggregation.SUM_LOG_ODDS, 0.9),
    ],
)
def test_the_rule_reaches_the_score(rule: Aggregation, score: float):
    assert aggregate([0.9, 0.2, 0.8], rule) == pytest.approx(score)


def test_the_window_is_the_lowest_mean_of_a_group():
    assert aggregate([0.9, 0.1, 0.3, 0.8], Aggregation.WINDOW, window=2) == pytest.approx(0.2)
    assert aggregate([0.9, 0.1], Aggregation.WINDOW, window=5) == pytest.approx(0.5)


@pytest.mark.parametrize("rule", Aggregation)
def test_unknown_steps_are_left_out_and_nothing_known_is_unknown(rule: Aggregation):
    assert aggregate([None, 0.3, None, 0.7], rule) == aggregate([0.3, 0.7], rule)
    assert aggregate([None, None], rule) is None
    assert aggregate([], rule) is None


@given(st.lists(st.none() | st.floats(0.0, 1.0)), st.sampled_from(Aggregation), st.integers(1, 5))
def test_scores_stay_in_the_unit_interval(values: list[float | None], rule: Aggregation, window: int):
    score = aggregate(values, rule, window=window)
    assert score is None or 0.0 <= score <= 1.0
