"""Reports a step that does not end. It ends nothing itself."""

import threading
import time

import structlog

log = structlog.get_logger(__name__)

LOOKS_PER_LIMIT = 4


class Watchdog:
    """A daemon timer beside the engine thread. A step that runs for more than `limit_s` seconds is reported
    once, in the log and in `reports`.
    """

    def __init__(self, limit_s: float) -> None:
        self.reports = 0
        self._limit_s = limit_s
        self._running: tuple[int, float] | None = None
        self._reported: int | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="branchwise-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the timer; does not wait."""
        self._stopping.set()

    def enter(self, step: int, now: float) -> None:
        """Step `step` begins to execute at `now`, by the monotonic clock."""
        self._running = (step, now)

    def leave(self) -> None:
        self._running = None

    def look(self, now: float) -> None:
        """Report the running step, if it is stuck at `now` and was not reported yet."""
        running = self._running
        if running is None or running[0] == self._reported or now - running[1] <= self._limit_s:
            return
        self._reported = running[0]
        self.reports += 1
        log.error("a step is stuck", step=running[0], seconds=round(now - running[1], 3))

    def _watch(self) -> None:
        while not self._stopping.wait(self._limit_s / LOOKS_PER_LIMIT):
            self.look(time.monotonic())
