"""The base of back ends without KV: a sequence is the list of its tokens, and meters are asked on the event
loop.
"""

import math
import time
from bisect import insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel

from .errors import HandleError
from .protocol import Meter, SeqId, Verdict, Work

ASK_AGAIN_S = 0.002
"""A meter that deferred is asked again after this, or when it notifies."""


class TokenList(Protocol):
    """A sequence; `running` is the scope of the extension that is under way, if any."""

    tokens: list[int]
    running: anyio.CancelScope | None


S = TypeVar("S", bound=TokenList)


class TokenLists(Generic[S]):
    """The verbs of `Backend` that such back ends have in common; `open`, `fork`, `extend` and `score` are
    their own."""

    def __init__(self) -> None:
        self._sequences: dict[SeqId, S] = {}
        self._next = 0
        self._notified = 0
        self._answered = 0
        self._asked_at = -math.inf
        self._asking: list[_Asking] = []

    def append(self, seq: SeqId, tokens: Sequence[int]) -> None:
        self._idle(seq).tokens.extend(tokens)

    def truncate(self, seq: SeqId, position: int) -> None:
        del self._idle(seq).tokens[position:]

    def park(self, seq: SeqId) -> None:
        """Nothing is held that could be given back."""

    def release(self, seq: SeqId, *, pruned: bool = False) -> None:
        sequence = self._sequences.pop(seq, None)
        if sequence is not None and sequence.running is not None:
            sequence.running.cancel()

    def notify(self) -> None:
        self._notified += 1
        for asking in self._asking:
            asking.woken.set()

    def _add(self, sequence: S) -> SeqId:
        self._next += 1
        handle = SeqId(self._next)
        self._sequences[handle] = sequence
        return handle

    def _idle(self, seq: SeqId) -> S:
        """Raises `HandleError` for a sequence that is released, unknown or running."""
        if seq not in self._sequences:
            raise HandleError(f"sequence {seq}: released or unknown")
        sequence = self._sequences[seq]
        if sequence.running is not None:
            raise HandleError(f"sequence {seq}: busy")
        return sequence

    @contextmanager
    def _busy(self, sequence: S) -> Iterator[anyio.CancelScope]:
        """In the block the sequence is busy, and its release cancels the scope."""
        with anyio.CancelScope() as scope:
            sequence.running = scope
            try:
                yield scope
            finally:
                sequence.running = None

    async def _granted(self, meter: Meter, work: Work, order: tuple[int, ...]) -> bool:
        """Whether the meter covers the work; waits while it defers. Those that wait are asked for together,
        by `order`, whichever of them wakes first: with a scarce budget it matters who asks."""
        asking = _Asking(order, meter, work)
        asking.ask()
        if asking.undecided:
            insort(self._asking, asking, key=lambda one: one.order)
            try:
                while asking.undecided:
                    asking.woken = anyio.Event()
                    with anyio.move_on_after(ASK_AGAIN_S):
                        await asking.woken.wait()
                    self._ask_all()
            except BaseException:
                if asking.verdict is Verdict.GRANTED:
                    meter.refund(work)
                raise
            finally:
                self._asking.remove(asking)
        elif asking.verdict is Verdict.REFUSED:
            await anyio.lowlevel.checkpoint()
        return asking.verdict is Verdict.GRANTED

    def _ask_all(self) -> None:
        """Once for each notification, and where there is none, each time that `ASK_AGAIN_S` went by."""
        now = time.monotonic()
        if self._answered == self._notified and now - self._asked_at < ASK_AGAIN_S:
            return
        self._answered, self._asked_at = self._notified, now
        for asking in list(self._asking):
            if asking.undecided:
                asking.ask()


class _Asking:
    """Work that waits for its meter."""

    def __init__(self, order: tuple[int, ...], meter: Meter, work: Work) -> None:
        self.order = order
        self._meter = meter
        self._work = work
        self.woken = anyio.Event()
        self.verdict = Verdict.DEFER

    @property
    def undecided(self) -> bool:
        return self.verdict in (Verdict.DEFER, Verdict.YIELD)

    def ask(self) -> None:
        self.verdict = self._meter.grant(self._work)
