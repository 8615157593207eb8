"""Accuracy at equal compute: interpolation in log cost, hull, area."""

import itertools
import math

import pytest
from branchwise.evals.statistics.compute import Point, accuracy_at, bracket, log_area, pareto_hull
from hypothesis import given
from hypothesis import strategies as st

points = st.lists(st.builds(Point, st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=20)


def test_between_two_costs_accuracy_is_linear_in_log_cost() -> None:
    curve = [Point(100, 0.4), Point(10_000, 0.8)]
    assert accuracy_at(curve, 1000) == pytest.approx(0.6)
    assert accuracy_at(curve, 100) == 0.4


@pytest.mark.parametrize("cost", [99, 10_001])
def test_nothing_is_extrapolated(cost: float) -> None:
    assert accuracy_at([Point(10_000, 0.8), Point(100, 0.4)], cost) is None


def test_a_cost_of_nothing_has_no_place_on_the_scale() -> None:
    with pytest.raises(ValueError, match="above 0"):
        bracket([0.0, 1.0], 1.0)


@given(points)
def test_the_hull_is_concave_rises_and_lies_above_every_point(cloud: list[Point]) -> None:
    hull = pareto_hull(cloud)
    assert set(hull) <= set(cloud)
    slopes = [(b.accuracy - a.accuracy) / math.log(b.cost / a.cost) for a, b in itertools.pairwise(hull)]
    assert all(slope > 0 for slope in slopes)
    assert all(b <= a for a, b in itertools.pairwise(slopes))
    for point in cloud:
        if point.cost >= hull[-1].cost:
            assert point.accuracy <= hull[-1].accuracy
        else:
            reached = accuracy_at(hull, point.cost)
            assert reached is not None
            assert point.accuracy <= reached + 1e-9


def test_the_area_of_a_flat_curve_is_its_height() -> None:
    assert log_area([Point(1, 0.5), Point(10, 0.5), Point(1000, 0.5)]) == pytest.approx(0.5)
    assert log_area([Point(3, 0.5)]) is None
