"""From the events of searches to the bytes of a stream."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec

from ..engine.protocol import ModelInfo
from ..reasoning.events import Event
from ..reasoning.solution import Solution
from .chunks import Chunks
from .deltas import PathDeltas, only_path
from .errors import as_api_error
from .reading import Call

KEEP_ALIVE = b": the search goes on\n\n"
DONE = b"data: [DONE]\n\n"


class Feed:
    """Takes events in on the event loop and gives server-sent events out; a slow reader holds nothing up.

    What it holds for one is bounded by the budget: events come with tokens.
    """

    def __init__(self, call: Call, info: ModelInfo, chunks: Chunks, step: str | None = None) -> None:
        """`step`: how the server divides steps (`Settings.step`)."""
        self._call = call
        self._chunks = chunks
        self._deltas = [PathDeltas(info, call.stops, only_path(ask, info, step)) for ask in call.asks]
        self._events: list[tuple[int, Event | Solution]] = []
        self._solutions: list[Solution] | None = None
        self._failure: Exception | None = None
        self._started = False
        self._arrived = anyio.Event()

    def receive(self, index: int, event: Event) -> None:
        """An event of the search of choice `index`."""
        self._started = True
        self._events.append((index, event))
        self._arrived.set()

    def choose(self, index: int, solution: Solution) -> None:
        """The search of choice `index` is over."""
        self._events.append((index, solution))
        self._arrived.set()

    def finish(self, solutions: list[Solution]) -> None:
        self._started = True
        self._solutions = solutions
        self._arrived.set()

    def fail(self, error: Exception) -> None:
        self._failure = error
        self._arrived.set()

    async def begun(self) -> Exception | None:
        """Wait for the first event; the error where the search ended without one."""
        await self._arrived.wait()
        return None if self._started else self._failure

    async def parts(self, keep_alive_s: float) -> AsyncIterator[bytes]:
        """The stream; a comment after each `keep_alive_s` of silence."""
        yield b"".join(self._frame(self._chunks.first(index)) for index in range(len(self._call.asks)))
        while True:
            with anyio.move_on_after(keep_alive_s):
                await self._arrived.wait()
            if not self._arrived.is_set():
                yield KEEP_ALIVE
                continue
            self._arrived = anyio.Event()
            events, self._events = self._events, []
            if part := b"".join(self._of_event(index, event) for index, event in events):
                yield part
            if self._events:  # they came while the part was read
                continue
            if self._failure is not None:
                yield self._frame({"error": msgspec.to_builtins(as_api_error(self._failure).detail)}) + DONE
                return
            if self._solutions is not None:
                yield self._end(self._solutions)
                return

    def _of_event(self, index: int, event: Event | Solution) -> bytes:
        if isinstance(event, Solution):
            return self._of_choice(index, event)
        deltas = self._deltas[index].push(event)
        frames = [self._frame(self._chunks.delta(index, delta)) for delta in deltas]
        if self._call.search_events:
            frames.append(self._frame(self._chunks.event(index, event)))
        return b"".join(frames)

    def _of_choice(self, index: int, solution: Solution) -> bytes:
        """The rest of a choice, as soon as its own search chose."""
        frames = [
            self._frame(self._chunks.delta(index, delta)) for delta in self._deltas[index].end(solution)
        ]
        return b"".join([*frames, self._frame(self._chunks.last(index, solution))])

    def _end(self, solutions: list[Solution]) -> bytes:
        return (self._frame(self._chunks.usage(solutions)) if self._call.stream_usage else b"") + DONE

    @staticmethod
    def _frame(chunk: dict[str, Any] | None) -> bytes:
        return b"" if chunk is None else b"data: " + msgspec.json.encode(chunk) + b"\n\n"
