"""Scarce budgets favour finished work: which waiting branch may start (design section 3)."""

from collections.abc import Iterable

import anyio
import msgspec

from ..engine.text.stop import Until
from .clock import Path
from .ledger import Cap, Ledger


class _Run(msgspec.Struct, eq=False):
    """A started extension: what it may take at most, and what it was granted so far."""

    until: Until
    max_tokens: int
    answering: bool
    caps: tuple[Cap, ...] = ()
    generated: int = 0


class _Waiter(msgspec.Struct, eq=False):
    run: _Run
    started: anyio.Event


class Admission:
    """Extensions that run, and those that wait for the budget.

    A waiting one starts only when the remaining budget less the reserve covers the expected rest of the
    running ones plus its own: the running mean of finished lengths, before any its `max_tokens`. The same
    holds within each cap in force (`Search.phase`). At least one always runs, and one of each cap.
    """

    def __init__(self, ledger: Ledger, *, reproducible: bool) -> None:
        self._ledger = ledger
        self._reproducible = reproducible
        self._running: dict[Path, _Run] = {}
        self._waiting: dict[Path, _Waiter] = {}
        self._finished: dict[Until, tuple[int, int]] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def enter(
        self, path: Path, until: Until, max_tokens: int, *, answering: bool, caps: tuple[Cap, ...] = ()
    ) -> None:
        """Wait until the extension may start; it is then counted as running. Cancelling leaves the queue."""
        run = _Run(until, max_tokens, answering, tuple(cap for cap in caps if cap.tokens is not None))
        if not (self._ledger.limits_tokens or run.caps) or answering:
            self._running[path] = run
            return
        waiter = _Waiter(run, anyio.Event())
        self._waiting[path] = waiter
        if not self._reproducible:
            self.start_waiting()
        try:
            await waiter.started.wait()
        except BaseException:
            self._waiting.pop(path, None)
            self.leave(path, ended_by_itself=False)
            raise

    def count(self, path: Path, tokens: int) -> None:
        """The running extension was granted tokens (negative: refunded)."""
        run = self._running.get(path)
        if run is not None:
            run.generated += tokens

    def leave(self, path: Path, *, ended_by_itself: bool) -> None:
        """The extension ended; its length counts for the mean where nothing cut it."""
        run = self._running.pop(path, None)
        if run is None:
            return
        if ended_by_itself:
            total, count = self._finished.get(run.until, (0, 0))
            self._finished[run.until] = (total + run.generated, count + 1)
        if not self._reproducible:
            self.start_waiting()

    def start_waiting(self) -> bool:
        """Start waiting extensions in path order as far as the budget covers them; whether any was
        started."""
        started = False
        for path in sorted(self._waiting):
            waiter = self._waiting[path]
            if self._running and not self._ledger.spent:
                if not self._covers(waiter.run):
                    break
                if not all(self._fits(waiter.run, cap) for cap in waiter.run.caps):
                    continue
            del self._waiting[path]
            self._running[path] = waiter.run
            waiter.started.set()
            started = True
        return started

    def _covers(self, candidate: _Run) -> bool:
        left = self._ledger.tokens_left(answering=candidate.answering)
        if left is None:
            return True
        return self._rest(self._running.values()) + self._expected(candidate) <= left

    def _fits(self, candidate: _Run, cap: Cap) -> bool:
        """Whether the cap covers the candidate beside those that run under it."""
        beside = [run for run in self._running.values() if any(own is cap for own in run.caps)]
        left = cap.tokens_left(answering=candidate.answering)
        return not beside or left is None or self._rest(beside) + self._expected(candidate) <= left

    def _rest(self, runs: Iterable[_Run]) -> int:
        """What running extensions are still expected to take."""
        return sum(max(0, self._expected(run) - run.generated) for run in runs)

    def _expected(self, run: _Run) -> int:
        total, count = self._finished.get(run.until, (0, 0))
        return run.max_tokens if count == 0 else min(run.max_tokens, -(-total // count))
