"""One score out of the step scores of a process reward model."""

import enum
import math
from collections.abc import Callable, Sequence

_SURE = 1e-6
"""Step scores are kept this far from 0 and 1 where their odds are taken."""


class Aggregation(enum.StrEnum):
    """How step scores become one: Lightman et al. 2023 use prod or min, Snell et al. 2024 the last step.

    `sum_log_odds` is the sigmoid of the sum of the log-odds; `window` the lowest mean of a few steps in a row
    (Fu et al. 2025, arXiv 2508.15260, on token groups).
    """

    LAST = "last"
    MIN = "min"
    PROD = "prod"
    MEAN = "mean"
    SUM_LOG_ODDS = "sum_log_odds"
    WINDOW = "window"


def aggregate(values: Sequence[float | None], rule: Aggregation, *, window: int = 3) -> float | None:
    """One score in [0, 1]; steps that could not be scored (None) are left out. None where none was.

    `window` is the number of steps in a group; a shorter trace is one group.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return _lowest_mean(known, window) if rule is Aggregation.WINDOW else _RULES[rule](known)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _lowest_mean(values: Sequence[float], width: int) -> float:
    groups = max(1, len(values) - width + 1)
    return min(_mean(values[start : start + width]) for start in range(groups))


def _joint_odds(values: Sequence[float]) -> float:
    kept = [min(max(value, _SURE), 1.0 - _SURE) for value in values]
    log_odds = math.fsum(math.log(value / (1.0 - value)) for value in kept)
    return 0.5 * (1.0 + math.tanh(log_odds / 2.0))


_RULES: dict[Aggregation, Callable[[Sequence[float]], float]] = {
    Aggregation.LAST: lambda values: values[-1],
    Aggregation.MIN: min,
    Aggregation.PROD: math.prod,
    Aggregation.MEAN: _mean,
    Aggregation.SUM_LOG_ODDS: _joint_odds,
}
