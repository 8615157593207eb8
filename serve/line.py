"""Who may run now, and who stands in line."""

import math
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import anyio
import anyio.lowlevel

from .errors import too_many
from .keys import Caller
from .settings import Limits

LONGEST_WAIT_S = 60
_USUAL = 20
"""The usual time of a search is the mean over about so many."""


class _Place:
    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.called = anyio.Event()


class Line:
    """At most `limits.running` searches at a time, of one key at most its quota; the others wait in the order
    they came, those apart whose key runs as many as it may. A full line refuses, and of one key no more may
    stand in it than its quota says, or half of it where that says nothing."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        self._waiting: deque[_Place] = deque()
        self._usual_s = 1.0
        self.refused = 0

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for a place and hold it in the block. Raises `ApiError` 429 where the line is full."""
        await self._enter(caller)
        started = monotonic()
        try:
            yield
        finally:
            self._usual_s += (monotonic() - started - self._usual_s) / _USUAL
            self._leave(caller)

    async def _enter(self, caller: Caller) -> None:
        if self._fits(caller) and not any(self._fits(place.caller) for place in self._waiting):
            self._running[caller.name] += 1
            await anyio.lowlevel.cancel_shielded_checkpoint()
            return
        self._check_room(caller)
        place = _Place(caller)
        self._waiting.append(place)
        try:
            await place.called.wait()
        except BaseException:
            if place.called.is_set():
                self._leave(caller)
            else:
                self._waiting.remove(place)
            raise

    def _leave(self, caller: Caller) -> None:
        self._running[caller.name] -= 1
        if not self._running[caller.name]:
            del self._running[caller.name]
        self._call()

    def _call(self) -> None:
        """Let in whoever fits, first come first."""
        for place in list(self._waiting):
            if self.running >= self._limits.running:
                return
            if self._fits(place.caller):
                self._waiting.remove(place)
                self._running[place.caller.name] += 1
                place.called.set()

    def _fits(self, caller: Caller) -> bool:
        own = caller.quota.running
        return self.running < self._limits.running and (own is None or self._running[caller.name] < own)

    def _check_room(self, caller: Caller) -> None:
        own = sum(place.caller.name == caller.name for place in self._waiting)
        most = -(-self._limits.waiting // 2) if caller.quota.waiting is None else caller.quota.waiting
        if len(self._waiting) >= self._limits.waiting or own >= most:
            self.refused += 1
            raise too_many("the queue is full: try again later", self._retry_after_s(), code="queue_full")

    def _retry_after_s(self) -> int:
        """About when a place in line will be free."""
        ahead = (self.waiting + 1) / max(1, self._limits.running)
        return max(1, min(LONGEST_WAIT_S, math.ceil(ahead * self._usual_s)))
