"""Confidence intervals of rates and means over problems that were each solved several times.

Samples of one problem are not independent: all intervals here take problems as the units (Miller 2024, arXiv
2411.00640).
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

Outcomes = Sequence[Sequence[float]]
"""One row per problem, one value per sample of it; rows may differ in length, none is empty."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its confidence interval [low, high]; `n` counts the units (problems) behind it.

    An end is None where too few units say nothing about it.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    level: float = 0.95


def normal_quantile(level: float) -> float:
    """The two-sided quantile of the normal distribution: 1.96 for 0.95."""
    return float(stats.norm.ppf(0.5 + level / 2))


def wilson(successes: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate (1927): in [0, 1], and never of width 0.

    `n` may be an effective sample size. Raises `ValueError` unless 0 <= successes <= n and n > 0.
    """
    if not (0 <= successes <= n and n > 0):
        raise ValueError(f"{successes} successes of {n}: give 0 <= successes <= n, and n above 0")
    z = normal_quantile(level)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == n else centre + half)


def mean_estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The mean of independent values with Student's t interval; without ends for fewer than two values.

    Raises `ValueError` where there are none.
    """
    if not len(values):
        raise ValueError("no values: a mean needs at least one")
    data = np.asarray(values, float)
    mean = float(data.mean())
    if len(data) < 2:
        return Estimate(value=mean, low=None, high=None, n=len(data), level=level)
    half = float(stats.t.ppf(0.5 + level / 2, len(data) - 1)) * standard_error(values)
    return Estimate(value=mean, low=mean - half, high=mean + half, n=len(data), level=level)


def standard_error(values: Sequence[float]) -> float:
    """sd / sqrt(n), with n - 1 in the variance; for two values or more."""
    data = np.asarray(values, float)
    return float(data.std(ddof=1)) / math.sqrt(len(data))


def problem_means(outcomes: Outcomes) -> NDArray[np.float64]:
    """The mean of each problem's samples."""
    return np.array([math.fsum(row) / len(row) for row in outcomes])


def clustered_error(outcomes: Outcomes) -> float:
    """Standard error of the mean over all samples where those of one problem depend on each other (CR1).

    sqrt(sum over problems of (sum of residuals)^2 * C / (C - 1)) / n for C problems and n samples; nan for
    one problem.
    """
    problems = len(outcomes)
    if problems < 2:
        return math.nan
    n = sum(len(row) for row in outcomes)
    mean = math.fsum(value for row in outcomes for value in row) / n
    residuals = np.array([math.fsum(row) - mean * len(row) for row in outcomes])
    return math.sqrt(float(residuals @ residuals) * problems / (problems - 1)) / n


def rate_estimate(outcomes: Outcomes, level: float = 0.95) -> Estimate:
    """The rate of ones over all samples, with Wilson's interval on the effective number of samples.

    That number is `p (1 - p) / SE^2` for the clustered SE, at least the number of problems where samples of
    one problem always agree, and at most that of samples. One sample per problem gives Wilson's interval
    itself. Raises `ValueError` where there is no sample.
    """
    samples = sum(len(row) for row in outcomes)
    if not samples:
        raise ValueError("no samples: a rate needs at least one")
    problems = sum(bool(len(row)) for row in outcomes)
    rate = math.fsum(value for row in outcomes for value in row) / samples
    low, high = wilson(rate * (n := _effective(outcomes, rate, samples)), n, level)
    return Estimate(value=rate, low=low, high=high, n=problems, level=level)


def _effective(outcomes: Outcomes, rate: float, samples: int) -> float:
    problems = len(outcomes)
    if samples == problems:
        return samples
    error = clustered_error(outcomes)
    if not error > 0:
        return problems
    return min(samples, max(1.0, rate * (1 - rate) / error**2))


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """Variance of a sample's outcome, split by the law of total variance: of the problems' true means, and
    within a problem (mean over problems)."""

    between: float
    within: float


def variance_components(outcomes: Outcomes) -> Components:
    """Unbiased estimates of both parts, for problems with equally many samples, at least two each.

    The variance of the observed means holds `within / K` of sampling noise, which is taken off `between`
    (not below 0). Raises `ValueError` for ragged or single samples.
    """
    counts = {len(row) for row in outcomes}
    if len(counts) != 1 or min(counts) < 2 or len(outcomes) < 2:
        raise ValueError(
            "variance components need two problems or more with equally many samples, two or more"
        )
    data = np.asarray(outcomes, float)
    within = float(data.var(axis=1, ddof=1).mean())
    observed = float(data.mean(axis=1).var(ddof=1))
    return Components(between=max(0.0, observed - within / data.shape[1]), within=within)
