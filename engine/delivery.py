"""The event loop's side of a step: results go to the tickets that wait for them."""

from collections.abc import Callable, Sequence

import anyio

from .handles import Handle, Handles
from .sched.request import Delta, Outcome
from .ticket import Ticket


class Deliveries:
    """The tickets of the requests that have not ended. Everything here runs on the event loop."""

    def __init__(self, handles: Handles, cancel: Callable[[Ticket], None]) -> None:
        self._handles = handles
        self._cancel = cancel
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

    def deliver(self, outcomes: list[Outcome], deltas: list[Delta]) -> None:
        """Hand over what a step gave."""
        for request, tokens in _by_request(deltas).items():
            self._stream(self._tickets[request], tokens)
        for outcome in outcomes:
            ticket = self._tickets.pop(outcome.request)
            self._handles.ended(outcome.seq, outcome.known)
            ticket.end(outcome)
        if not self._tickets:
            self._emptied.set()

    def abandon(self, failure: BaseException | None) -> None:
        """The engine ended; nothing will come any more."""
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
