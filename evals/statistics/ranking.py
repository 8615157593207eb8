"""How well scores rank right above wrong, and whether they are probabilities."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from .intervals import Estimate, normal_quantile, wilson

Scored = Sequence[tuple[float, bool]]
"""(score, right) of the candidates of one problem."""


class CalibrationBin(msgspec.Struct, frozen=True, kw_only=True):
    """Candidates with scores in one of equally wide bins of [0, 1]: their mean score and the share of right
    ones, whose interval [low, high] is Wilson's over the candidates."""

    mean_score: float
    right: float
    low: float
    high: float
    n: int


def auroc(problems: Sequence[Scored], level: float = 0.95) -> Estimate | None:
    """Probability that a right candidate scores above a wrong one, ties counting half, over all pairs.

    The interval takes problems as clusters (Obuchowski 1997, Biometrics 53:567); its ends are None where
    all pairs are ranked alike or problems are too few. None where all candidates are right, or all wrong.
    """
    scores = np.array([score for rows in problems for score, _ in rows], float)
    right = np.array([is_right for rows in problems for _, is_right in rows], bool)
    cluster = np.array([index for index, rows in enumerate(problems) for _ in rows], int)
    rights, wrongs = int(right.sum()), int((~right).sum())
    if not rights or not wrongs:
        return None
    above = np.empty(len(scores))
    above[right] = _share_below(scores[right], scores[~right])
    above[~right] = 1 - _share_below(scores[~right], scores[right])
    area = float(above[right].mean())
    error = math.sqrt(max(0.0, _clustered_variance(above - area, right, cluster, len(problems))))
    n = sum(bool(rows) for rows in problems)
    if not error > 0:
        return Estimate(value=area, low=None, high=None, n=n, level=level)
    half = normal_quantile(level) * error
    return Estimate(value=area, low=max(0.0, area - half), high=min(1.0, area + half), n=n, level=level)


def brier(scored: Scored) -> float:
    """Mean squared distance of score and outcome; 0.25 for a score that is always a half."""
    return math.fsum((score - is_right) ** 2 for score, is_right in scored) / len(scored)


def calibration(scored: Scored, bins: int = 10) -> tuple[CalibrationBin, ...]:
    """The bins of [0, 1] that hold candidates, from the lowest; scores outside of [0, 1] are left out."""
    found: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for score, is_right in scored:
        if 0 <= score <= 1:
            found[min(int(score * bins), bins - 1)].append((score, is_right))
    return tuple(_bin(members) for members in found if members)


def calibration_error(bins: Sequence[CalibrationBin]) -> float | None:
    """Expected calibration error: mean distance of score and share of right ones, weighted by candidates."""
    total = sum(b.n for b in bins)
    return math.fsum(b.n * abs(b.mean_score - b.right) for b in bins) / total if total else None


def _share_below(of: NDArray[np.float64], among: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each of `of`, the share of `among` that lies below it, ties counting half."""
    ordered = np.sort(among)
    left, right = np.searchsorted(ordered, of, "left"), np.searchsorted(ordered, of, "right")
    return (left + right) / (2 * len(among))


def _clustered_variance(
    residuals: NDArray[np.float64], right: NDArray[np.bool_], cluster: NDArray[np.int_], clusters: int
) -> float:
    """Obuchowski's variance from the placement values' residuals."""

    def sums(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.bincount(cluster[chosen], residuals[chosen], clusters).astype(np.float64)

    def small_sample(holding: int) -> float:
        return holding / (holding - 1) if holding > 1 else 0.0

    of_right, of_wrong = sums(right), sums(~right)
    rights, wrongs = right.sum(), (~right).sum()
    with_right, with_wrong = len(set(cluster[right])), len(set(cluster[~right]))
    return float(
        small_sample(with_right) * (of_right @ of_right) / rights**2
        + small_sample(with_wrong) * (of_wrong @ of_wrong) / wrongs**2
        + 2 * small_sample(len(set(cluster))) * (of_right @ of_wrong) / (rights * wrongs)
    )


def _bin(members: Scored) -> CalibrationBin:
    n, right = len(members), sum(is_right for _, is_right in members)
    low, high = wilson(right, n)
    return CalibrationBin(
        mean_score=math.fsum(score for score, _ in members) / n, right=right / n, low=low, high=high, n=n
    )
