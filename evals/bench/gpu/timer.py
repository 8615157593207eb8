"""How long work takes on a GPU, and how long there is still to measure it."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Protocol

import torch

_GRAPH_S = 300e-6
"""Work in one graph: enough that its launch and the events around it do not count."""
_MOST_IN_GRAPH = 40
_LEAST_REPLAYS, _MOST_REPLAYS = 5, 50


class Timer(Protocol):
    """Measures."""

    def seconds(self, work: Callable[[], object]) -> float:
        """The time of one run of `work`, which is repeated: it does not wait for the device."""
        ...


class CudaTimer:
    """Implements `Timer`: the median of replays of a CUDA graph that holds `work` several times. About
    `budget_s` seconds go into the replays."""

    def __init__(self, device: torch.device, budget_s: float = 0.05) -> None:
        self._device = device
        self._budget_s = budget_s

    def seconds(self, work: Callable[[], object]) -> float:
        """See `Timer.seconds`."""
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            work()  # compiles
            once = self._between(work)
        torch.cuda.current_stream(self._device).wait_stream(aside)
        times = min(max(round(_GRAPH_S / once), 1), _MOST_IN_GRAPH)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                work()
        first = self._between(graph.replay)
        replays = min(max(round(self._budget_s / first), _LEAST_REPLAYS), _MOST_REPLAYS)
        return statistics.median(self._between(graph.replay) for _ in range(replays)) / times

    def _between(self, work: Callable[[], object]) -> float:
        """Seconds from event to event around `work`, on an idle device."""
        torch.cuda.synchronize(self._device)
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        work()
        ended.record()
        ended.synchronize()
        return max(began.elapsed_time(ended) / 1e3, 1e-9)


class Unmeasured:
    """Implements `Timer` without measuring: runs work once, which compiles its kernels, and says NaN."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def seconds(self, work: Callable[[], object]) -> float:
        """See `Timer.seconds`."""
        work()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return math.nan


class Deadline:
    """A moment `seconds` from now."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = now() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then; below 0 behind it."""
        return self._end - self._now()

    def within(self, seconds: float) -> "Deadline":
        """The moment `seconds` from now, or this one where it comes first."""
        return Deadline(min(seconds, self.left_s), self._now)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.left_s <= 0
