"""The event loop's side of a step: results go to the tickets that wait for them."""

import contextlib
from collections.abc import Callable, Sequence

import anyio
import anyio.from_thread
import anyio.lowlevel

from .handles import Handle, Handles
from .sched.request import Delta, Outcome
from .settling import Settle
from .ticket import Ticket


class Deliveries:
    """The tickets of the requests that have not ended. Everything here runs on the event loop, but for the
    two verbs that hand over from the engine thread.

    `event_loop` is None until the engine is entered; `abandoned` says that it ended.
    """

    def __init__(self, handles: Handles, cancel: Callable[[Ticket], None], settle: Settle) -> None:
        self.event_loop: anyio.lowlevel.EventLoopToken | None = None
        self.abandoned = False
        self._handles = handles
        self._cancel = cancel
        self._settle = settle
        self._tickets: dict[int, Ticket] = {}
        self._emptied = anyio.Event()

    def add(self, ticket: Ticket, handle: Handle) -> None:
        """A request was made on the sequence of `handle`."""
        self._tickets[ticket.request] = ticket
        handle.busy = True

    async def drained(self) -> None:
        """Wait until no request is open."""
        while self._tickets:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    def hand_over(self, outcomes: list[Outcome], deltas: list[Delta]) -> None:
        """On the engine thread: deliver what a step gave, return when those that it woke have parked."""
        anyio.from_thread.run(self.deliver, outcomes, deltas, token=self.event_loop)

    def hand_over_end(self, failure: BaseException | None) -> None:
        """On the engine thread: it ended."""
        with contextlib.suppress(anyio.RunFinishedError):  # nobody is left to be told
            anyio.from_thread.run(self.abandon, failure, token=self.event_loop)

    async def deliver(self, outcomes: list[Outcome], deltas: list[Delta]) -> None:
        """Hand over what a step gave; returns when those it woke have parked."""
        for request, tokens in _by_request(deltas).items():
            self._stream(self._tickets[request], tokens)
        for outcome in outcomes:
            ticket = self._tickets.pop(outcome.request)
            self._handles.ended(outcome.seq, outcome.known)
            ticket.end(outcome)
        if not self._tickets:
            self._emptied.set()
        await self._settle()

    async def abandon(self, failure: BaseException | None) -> None:
        """The engine ended; nothing will come any more."""
        self.abandoned = True
        for ticket in self._tickets.values():
            ticket.abandon(failure)
        self._tickets.clear()
        self._emptied.set()

    def _stream(self, ticket: Ticket, tokens: list[int]) -> None:
        assert ticket.on_tokens is not None
        try:
            ticket.on_tokens(tokens)
        except Exception as error:  # the caller's own code: its request ends, the engine goes on
            ticket.on_tokens = _ignore_tokens
            ticket.spoil(error)
            self._cancel(ticket)


def _by_request(deltas: list[Delta]) -> dict[int, list[int]]:
    grouped: dict[int, list[int]] = {}
    for delta in deltas:
        grouped.setdefault(delta.request, []).append(delta.token)
    return grouped


def _ignore_tokens(tokens: Sequence[int]) -> None:
    return None
