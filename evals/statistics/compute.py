"""Strategies at equal compute: accuracy as a function of mean cost, read between measured points only."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Point(NamedTuple):
    """Mean cost (any one unit, above 0) and accuracy of one setting."""

    cost: float
    accuracy: float


class Mix(NamedTuple):
    """The two measured settings around a cost, and the weight of the dearer one."""

    cheaper: int
    dearer: int
    weight: float


def bracket(costs: Sequence[float], cost: float) -> Mix | None:
    """Which settings stand around `cost`, and how far it lies between them in log cost.

    None outside of what was measured: nothing is extrapolated. Raises `ValueError` for costs not above 0.
    """
    if any(not c > 0 for c in (*costs, cost)):
        raise ValueError("costs must lie above 0 to be compared on a logarithmic scale")
    order = sorted(range(len(costs)), key=lambda index: costs[index])
    for index in order:
        if costs[index] == cost:
            return Mix(index, index, 0.0)
    for low, high in itertools.pairwise(order):
        if costs[low] < cost < costs[high]:
            return Mix(low, high, math.log(cost / costs[low]) / math.log(costs[high] / costs[low]))
    return None


def accuracy_at(points: Sequence[Point], cost: float) -> float | None:
    """Accuracy at a mean cost, interpolated linearly in log cost; None outside of the measured range."""
    mix = bracket([point.cost for point in points], cost)
    if mix is None:
        return None
    low, high = points[mix.cheaper].accuracy, points[mix.dearer].accuracy
    return low + mix.weight * (high - low)


def pareto_hull(points: Iterable[Point]) -> list[Point]:
    """The upper hull of accuracy over log cost, from the cheapest point on: no point, and no mixture of two,
    is both cheaper and more accurate. Accuracy rises strictly along it."""
    hull: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -p.accuracy)):
        if hull and point.accuracy <= hull[-1].accuracy:
            continue
        while len(hull) > 1 and _slope(hull[-2], point) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    return hull


def log_area(points: Iterable[Point]) -> float | None:
    """Mean accuracy over log cost between the cheapest and the dearest point; None for fewer than two
    costs."""
    ordered = sorted(points)
    width = math.log(ordered[-1].cost / ordered[0].cost) if len(ordered) > 1 else 0.0
    if width == 0:
        return None
    parts = (
        math.log(b.cost / a.cost) * (a.accuracy + b.accuracy) / 2 for a, b in itertools.pairwise(ordered)
    )
    return math.fsum(parts) / width


def _slope(a: Point, b: Point) -> float:
    return (b.accuracy - a.accuracy) / math.log(b.cost / a.cost) if b.cost > a.cost else math.inf
