"""When requests were submitted, started and got their tokens; the events of their lives in the log."""

import logging
import time
from collections import deque
from collections.abc import Callable

import structlog

from .histogram import Histogram
from .sched.observer import Observer
from .sched.request import ExtendRequest, Request
from .sched.sequence import Sequence

log = structlog.get_logger(__name__)

SHORT_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Bounds for what happens once per step, in seconds."""

LONG_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Bounds for what a caller waits for, in seconds."""

WINDOW_S = 10.0
"""Throughput is the mean over the steps of this many seconds."""

MAX_SAMPLES = 4096


class Timings(Observer):
    """Durations in seconds, by the clock of the engine thread. All tokens of a step come at the same time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.queue_wait = Histogram(LONG_S)
        self.first_token = Histogram(LONG_S)
        self.between_tokens = Histogram(SHORT_S)
        self.step = Histogram(SHORT_S)
        self._clock = clock
        self._now = clock()
        self._tokens = 0
        self._samples: deque[tuple[float, int]] = deque([(self._now, 0)], maxlen=MAX_SAMPLES)
        self._logs = debug_is_logged()

    def tick(self) -> float:
        """The time that everything has which happens until the next call."""
        self._now = self._clock()
        return self._now

    def stepped(self, began: float) -> None:
        """A step that began at `began` was committed just now."""
        self.step.observe(self._clock() - began)
        self._samples.append((self._now, self._tokens))

    def tokens_per_second(self) -> float:
        """Tokens committed per second, over the last steps."""
        now = self._clock()
        recent = [sample for sample in tuple(self._samples) if now - sample[0] <= WINDOW_S]
        if not recent or now <= recent[0][0]:
            return 0.0
        return (self._tokens - recent[0][1]) / (now - recent[0][0])

    def refused(self, request: int, seq: Sequence, error: Exception) -> None:
        if self._logs:
            log.debug("request was refused", request=request, sequence=seq.id, error=repr(error))

    def submitted(self, request: Request) -> None:
        request.submitted_at = self._now
        if self._logs:
            seq = request.seq
            log.debug("request waits", request=request.id, sequence=seq.id, model=seq.memory.name)

    def started(self, request: Request) -> None:
        if request.started_at < 0:
            request.started_at = self._now
            self.queue_wait.observe(self._now - request.submitted_at)
        if self._logs:
            log.debug("request runs", request=request.id, sequence=request.seq.id)

    def preempted(self, request: Request) -> None:
        if self._logs:
            log.debug("request was preempted", request=request.id, sequence=request.seq.id)

    def gained(self, request: ExtendRequest) -> None:
        now, before = self._now, request.token_at
        self._tokens += 1
        if before < 0:
            self.first_token.observe(now - request.submitted_at)
        else:
            self.between_tokens.observe(now - before)
        request.token_at = now

    def ended(self, request: Request, error: Exception | None) -> None:
        if self._logs:
            cause = None if error is None else repr(error)
            log.debug("request ended", request=request.id, sequence=request.seq.id, error=cause)

    def parked(self, holder: Sequence) -> None:
        if self._logs:
            log.debug("sequence was parked", sequence=holder.id, model=holder.memory.name)


def debug_is_logged() -> bool:
    """Whether somebody configured a log that takes debug events; an unasked library says nothing."""
    if not structlog.is_configured():
        return False
    enabled = getattr(log.bind(), "is_enabled_for", None)
    return bool(enabled(logging.DEBUG)) if enabled is not None else False
