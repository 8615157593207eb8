"""Comparing two strategies on the same problems, and several with a bound on false alarms."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import stats

from .intervals import Estimate, Outcomes, mean_estimate, problem_means, standard_error

EXACT_BELOW = 25
"""McNemar's test is exact where fewer pairs than this disagree."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`first - second` over the problems that both have.

    `p` is McNemar's where there is one sample per problem, else that of the paired t-test on the problems'
    means. `only_first`, `only_second` count the discordant pairs of samples (same problem, same seed);
    `correlation` is that of the problems' means, None where one of them does not vary. `p` is None for fewer
    than two problems.
    """

    difference: Estimate
    p: float | None
    test: str
    only_first: int
    only_second: int
    correlation: float | None = None


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided p of McNemar's test (1947) on the discordant pairs.

    Exact binomial where fewer than 25 disagree, else chi-squared without continuity correction; 1 where none
    does.
    """
    discordant = only_first + only_second
    if discordant == 0:
        return 1.0
    if discordant < EXACT_BELOW:
        return float(stats.binomtest(only_first, discordant).pvalue)
    return float(stats.chi2.sf((only_first - only_second) ** 2 / discordant, 1))


def paired_t(differences: Sequence[float]) -> float:
    """Two-sided p of Student's paired t-test; 1 where nothing differs, and 0 where all differ alike."""
    mean, error = float(np.mean(differences)), standard_error(differences)
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(mean) / error, len(differences) - 1))


def compare(first: Outcomes, second: Outcomes, level: float = 0.95) -> Comparison:
    """Compare two strategies problem by problem; row i of both is problem i.

    Raises `ValueError` for different numbers of problems, or none.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(f"{len(first)} and {len(second)} problems: a paired comparison needs the same ones")
    means = np.stack([problem_means(first), problem_means(second)], axis=1)
    differences = means[:, 0] - means[:, 1]
    pairs = [pair for a, b in zip(first, second, strict=True) for pair in zip(a, b, strict=False)]
    only_first = sum(a > b for a, b in pairs)
    only_second = sum(b > a for a, b in pairs)
    single = all(len(row) == 1 for row in (*first, *second))
    if single:
        p: float | None = mcnemar(only_first, only_second)
    else:
        p = paired_t(differences.tolist()) if len(differences) > 1 else None
    return Comparison(
        difference=mean_estimate(differences.tolist(), level),
        p=p,
        test="McNemar" if single else "paired t",
        only_first=only_first,
        only_second=only_second,
        correlation=_correlation(means),
    )


def _correlation(means: np.ndarray) -> float | None:
    if len(means) < 2 or not (means.std(axis=0) > 0).all():
        return None
    value = float(np.corrcoef(means.T)[0, 1])
    return value if math.isfinite(value) else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979), in input order: rejecting those below alpha makes one false alarm among
    all tests with probability alpha at most."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
