"""Counts of durations in fixed buckets, cheap enough for every token."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """`counts[i]` durations were at most `bounds[i]` seconds and more than the bound before; the last count
    is of those beyond all bounds. Written by one thread; a reader may see it between two observations.
    """

    __slots__ = ("_bucket", "_last", "bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        self._last = -1.0
        self._bucket = 0

    def observe(self, seconds: float) -> None:
        """One duration. Those of one step are mostly equal: the bucket is then known."""
        if seconds != self._last:
            self._last = seconds
            self._bucket = bisect_left(self.bounds, seconds)
        self.counts[self._bucket] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, durations up to it) as Prometheus wants them, "+Inf" last."""
        found, pairs = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), tuple(self.counts), strict=True):
            found += count
            pairs.append((bound, float(found)))
        return pairs
