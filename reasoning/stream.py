"""A search as the events of it, while it runs."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

from ..engine.errors import UsageError
from .events import Event
from .solution import Solution


class Solve(Protocol):
    """A call that solves, tells of its events, and ends when it is interrupted."""

    async def __call__(self, *, on_event: "Listen", interrupt: anyio.Event, **options: Any) -> Solution: ...


class Listen(Protocol):
    """What is called with each event."""

    def __call__(self, event: Event, /) -> None: ...


class SolveStream:
    """The events of one search, in order: each once, to whoever asks first.

    Events wait here until they are read; the budget bounds how many there are.
    """

    def __init__(self, interrupt: anyio.Event) -> None:
        self._interrupt = interrupt
        self._events: deque[Event] = deque()
        self._arrived = anyio.Event()
        self._solution: Solution | None = None
        self._error: Exception | None = None

    @property
    def ended(self) -> bool:
        """Whether the search ended; events may still wait to be read."""
        return self._solution is not None or self._error is not None

    @property
    def solution(self) -> Solution:
        """What the search came to. Raises `UsageError` while it runs, and what it raised."""
        if self._error is not None:
            raise self._error
        if self._solution is None:
            raise UsageError("the search has not ended: read its events to the end first")
        return self._solution

    def stop(self) -> None:
        """End the search with reason cancelled: what it has so far becomes its solution."""
        self._interrupt.set()

    def __aiter__(self) -> "SolveStream":
        return self

    async def __anext__(self) -> Event:
        """The next event; behind the last one, what the search raised is raised here."""
        while not self._events:
            if self._error is not None:
                raise self._error
            if self.ended:
                raise StopAsyncIteration
            if self._arrived.is_set():  # else another reader waits for it already
                self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._events.popleft()

    def put(self, event: Event) -> None:
        """The search says something."""
        self._events.append(event)
        self._arrived.set()

    def end(self, outcome: Solution | Exception) -> None:
        """The search is over."""
        if isinstance(outcome, Solution):
            self._solution = outcome
        else:
            self._error = outcome
        self._arrived.set()


@asynccontextmanager
async def open_stream(
    solve: Solve,
    *,
    on_event: Listen | None = None,
    interrupt: anyio.Event | None = None,
    **options: Any,
) -> AsyncIterator[SolveStream]:
    """Run `solve(**options)` beside the block, which reads its events; leaving the block cancels what still
    runs.

    `on_event` hears of each event, too, and `interrupt` stops the search as `SolveStream.stop` does. Behind
    the block a stream that was left early raises `UsageError` to whoever still reads it.
    """
    interrupt = interrupt or anyio.Event()
    stream = SolveStream(interrupt)
    failure: Exception | None = None

    def listen(event: Event) -> None:
        stream.put(event)
        if on_event is not None:
            on_event(event)

    async def run() -> None:
        try:
            stream.end(await solve(on_event=listen, interrupt=interrupt, **options))
        except Exception as error:  # raised where the events are read
            stream.end(error)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            try:
                yield stream
            except Exception as error:  # raised below: a task group would wrap it
                failure = error
            group.cancel_scope.cancel()
    finally:
        if not stream.ended:
            stream.end(UsageError("the stream was left before its search ended: read it inside its block"))
    if failure is not None:
        raise failure
