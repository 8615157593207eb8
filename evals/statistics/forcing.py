"""How well a method controls the length of thinking, and what the length buys: the three figures of s1
(Muennighoff et al. 2025, arXiv 2501.19393)."""

import math
from collections.abc import Sequence
from itertools import combinations

Sweep = Sequence[tuple[float, float]]
"""(mean tokens of thinking, accuracy) of each setting of one method."""


def control(within: Sequence[bool]) -> float:
    """Share of runs whose thinking lies within the limits that were asked for: 1 is perfect.

    Raises `ValueError` where there is no run.
    """
    if not within:
        raise ValueError("no runs: control is a share of at least one")
    return sum(within) / len(within)


def scaling(sweep: Sweep) -> float | None:
    """Mean slope of accuracy over tokens, over all pairs of settings: above 0 where thinking longer helps.

    Settings of one length make no slope; None where no two lengths differ.
    """
    ordered = sorted(sweep)
    slopes = [(high - low) / (b - a) for (a, low), (b, high) in combinations(ordered, 2) if b > a]
    return math.fsum(slopes) / len(slopes) if slopes else None


def performance(sweep: Sweep) -> float:
    """The best accuracy of any setting. Raises `ValueError` where there is none."""
    return max(accuracy for _, accuracy in sweep)
