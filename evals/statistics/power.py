"""How many problems a comparison needs, before it is run (Miller 2024, arXiv 2411.00640, section 5)."""

import math

import msgspec
import numpy as np
from scipy import stats

from .intervals import Outcomes


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Variances that a paired comparison meets: of the true difference between problems, and of single
    samples within a problem for either strategy, each solved `samples` times."""

    difference: float
    within_first: float
    within_second: float
    samples_first: int = 1
    samples_second: int = 1

    @property
    def per_problem(self) -> float:
        """Variance of one problem's observed difference."""
        return (
            self.difference
            + self.within_first / self.samples_first
            + self.within_second / self.samples_second
        )


def spread_of(first: Outcomes, second: Outcomes) -> Spread:
    """The spread as two runs on the same problems show it: one figure per problem where there is a single
    sample, since nothing then tells noise from difference."""
    a, b = np.asarray(first, float), np.asarray(second, float)
    observed = float((a.mean(axis=1) - b.mean(axis=1)).var(ddof=1))
    within = [float(x.var(axis=1, ddof=1).mean()) if x.shape[1] > 1 else 0.0 for x in (a, b)]
    noise = within[0] / a.shape[1] + within[1] / b.shape[1]
    return Spread(
        difference=max(0.0, observed - noise),
        within_first=within[0],
        within_second=within[1],
        samples_first=a.shape[1],
        samples_second=b.shape[1],
    )


def problems_needed(gap: float, spread: Spread, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Problems that show a true difference of `gap` with that power, in a two-sided test at `alpha`.

    Raises `ValueError` for a gap of 0.
    """
    if gap == 0:
        raise ValueError("gap=0: no number of problems shows a difference of nothing")
    z = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power))
    return max(2, math.ceil(z * z * spread.per_problem / gap**2))


def power_of(gap: float, problems: int, spread: Spread, *, alpha: float = 0.05) -> float:
    """Probability that a two-sided test at `alpha` on so many problems rejects where the true difference is
    `gap`."""
    shift = abs(gap) / math.sqrt(spread.per_problem / problems)
    z = float(stats.norm.ppf(1 - alpha / 2))
    return float(stats.norm.sf(z - shift) + stats.norm.cdf(-z - shift))


def visible_gap(problems: int, spread: Spread, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest true difference that so many problems show with that power."""
    z = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power))
    return z * math.sqrt(spread.per_problem / problems)
