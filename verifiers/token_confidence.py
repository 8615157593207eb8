"""How sure a model was along a trace, from one figure per token: pure functions over numbers.

DeepConf (Fu et al. 2025, arXiv 2508.15260): the confidence of a token is the mean negative log-probability of
the k most likely tokens, larger when surer; a group is a window of tokens in a row, and a trace is as good
as its weakest groups. A trace shorter than the window is one group, its plain mean.
"""

import math
from collections import deque
from collections.abc import Sequence

TOP_K = 20
"""Most likely tokens that a token's confidence is taken over."""
WINDOW_TOKENS = 2048
"""Tokens in a group, and in the tail."""
BOTTOM_SHARE = 0.1
"""Share of the groups that count as the weakest."""


class GroupConfidence:
    """The mean over the last `window` tokens, token by token: what an online stop watches.

    `lowest` is the least mean of a full window so far; None before the first one. Infinite figures (a token
    among the k that is impossible) make their windows infinite, and only these.
    """

    def __init__(self, window: int = WINDOW_TOKENS) -> None:
        """Raises `ValueError` where `window` is not positive."""
        if window < 1:
            raise ValueError(f"window={window}: give 1 token or more")
        self.window = window
        self.lowest: float | None = None
        self._last: deque[float] = deque()
        self._sum = 0.0
        self._infinite = 0

    @property
    def full(self) -> bool:
        """Whether a whole window was seen."""
        return len(self._last) == self.window

    @property
    def mean(self) -> float | None:
        """The mean of the last tokens, up to `window` of them; None before the first."""
        if not self._last:
            return None
        return math.inf if self._infinite else self._sum / len(self._last)

    def push(self, confidence: float) -> float | None:
        """One more token: the mean of the window where it is full, else None."""
        if self.full:
            self._drop(self._last.popleft())
        self._last.append(confidence)
        if math.isinf(confidence):
            self._infinite += 1
        else:
            self._sum += confidence
        if not self.full:
            return None
        mean = self.mean
        assert mean is not None
        self.lowest = mean if self.lowest is None else min(self.lowest, mean)
        return mean

    def _drop(self, confidence: float) -> None:
        if math.isinf(confidence):
            self._infinite -= 1
        else:
            self._sum -= confidence


def group_means(values: Sequence[float], window: int = WINDOW_TOKENS) -> list[float]:
    """The mean of every window of tokens in a row; of all of them where they are fewer. Empty for none."""
    if not values:
        return []
    group = GroupConfidence(window)
    means = [mean for value in values if (mean := group.push(value)) is not None]
    return means or [_mean(values)]


def mean_confidence(values: Sequence[float]) -> float | None:
    """The mean over the whole trace, None for an empty one."""
    return _mean(values) if values else None


def lowest_group(values: Sequence[float], window: int = WINDOW_TOKENS) -> float | None:
    """The mean of the weakest group, None for an empty trace."""
    return min(group_means(values, window), default=None)


def bottom_groups(
    values: Sequence[float], window: int = WINDOW_TOKENS, share: float = BOTTOM_SHARE
) -> float | None:
    """The mean of the weakest `share` of the groups, at least one of them. None for an empty trace."""
    means = sorted(group_means(values, window))
    return _mean(means[: max(1, int(len(means) * share))]) if means else None


def tail_confidence(values: Sequence[float], window: int = WINDOW_TOKENS) -> float | None:
    """The mean of the last `window` tokens, of all where they are fewer. None for an empty trace."""
    return _mean(values[-window:]) if values else None


def stop_threshold(lowest: Sequence[float], kept_percent: float) -> float:
    """The group confidence below which an online trace stops, from the `lowest_group` of the warm-up traces:
    their percentile at 100 - `kept_percent`, linear between two of them.

    Raises `ValueError` where there is no trace or the share is out of range.
    """
    if not lowest:
        raise ValueError("threshold of no warm-up trace: give at least one")
    if not 0 < kept_percent <= 100:
        raise ValueError(f"kept_percent={kept_percent}: give a number above 0, at most 100")
    ranked = sorted(lowest)
    place = (len(ranked) - 1) * (100 - kept_percent) / 100
    below, part = int(place), place - int(place)
    if part == 0 or ranked[below] == ranked[below + 1]:
        return ranked[below]
    return ranked[below] + (ranked[below + 1] - ranked[below]) * part


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
