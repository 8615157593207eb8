"""Bootstrap intervals that resample problems, and for the hierarchical one the samples inside too."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .intervals import Estimate, Outcomes, problem_means

Rows = NDArray[np.float64]
"""(problems, samples)"""
RESAMPLES = 10_000
_CHUNK = 500


def clustered_bootstrap(
    outcomes: Outcomes, *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> Estimate:
    """The mean of the problems' means, resampling whole problems: percentile interval.

    The spread of observed problem means already holds the noise within problems.
    """
    means = problem_means(outcomes)
    rng = np.random.default_rng(seed)

    def draw(count: int) -> NDArray[np.float64]:
        return means[rng.integers(0, len(means), (count, len(means)))].mean(axis=1)

    return _percentile(float(means.mean()), draw, len(means), resamples, level)


def hierarchical_bootstrap(
    outcomes: Outcomes, *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> Estimate:
    """As `clustered_bootstrap`, resampling the samples inside each drawn problem as well.

    Wider: noise within problems enters twice (once in the observed means). It bounds what would change if
    both problems and samples were drawn anew. Problems need equally many samples.
    """
    data = _rectangular(outcomes)
    rng = np.random.default_rng(seed)

    def draw(count: int) -> NDArray[np.float64]:
        return _resampled(data, rng, count).mean(axis=(1, 2))

    return _percentile(float(data.mean()), draw, len(data), resamples, level)


def paired_bootstrap(
    first: Outcomes,
    second: Outcomes,
    *,
    hierarchical: bool = False,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Estimate:
    """Mean difference `first - second` over the same problems, row by row: both get the same drawn indices.

    Samples of one column share their seed where the rows are equally long; `hierarchical` needs that.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} problems: a paired comparison needs the same ones")
    if hierarchical:
        rows = (_rectangular(first) - _rectangular(second)).tolist()
        return hierarchical_bootstrap(rows, seed=seed, resamples=resamples, level=level)
    differences = [[value] for value in (problem_means(first) - problem_means(second)).tolist()]
    return clustered_bootstrap(differences, seed=seed, resamples=resamples, level=level)


def _resampled(data: Rows, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """(count, problems, samples): problems drawn with replacement, then samples of each."""
    problems, samples = data.shape
    rows = rng.integers(0, problems, (count, problems))
    columns = rng.integers(0, samples, (count, problems, samples))
    return data[rows[:, :, None], columns]


def _percentile(
    value: float, draw: Callable[[int], NDArray[np.float64]], n: int, resamples: int, level: float
) -> Estimate:
    means = np.concatenate([draw(min(_CHUNK, resamples - start)) for start in range(0, resamples, _CHUNK)])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value=value, low=float(low), high=float(high), n=n, level=level)


def _rectangular(outcomes: Outcomes) -> Rows:
    lengths = {len(row) for row in outcomes}
    if len(lengths) != 1:
        raise ValueError(f"between {min(lengths)} and {max(lengths)} samples per problem: give equally many")
    return np.asarray(outcomes, float)
