"""What waits on the event loop's side for a request of the engine thread."""

from collections.abc import Callable, Sequence

import anyio

from .errors import EngineClosed
from .protocol import Extension, Pinned, Scores
from .sched.request import Outcome

OnTokens = Callable[[Sequence[int]], None]


class Ticket:
    """One pending request. Its outcome is set once, on the event loop."""

    __slots__ = ("_ended", "_error", "_outcome", "on_end", "on_tokens", "request")

    def __init__(self, request: int, on_tokens: OnTokens | None = None) -> None:
        self.request = request
        self.on_tokens = on_tokens
        self.on_end: Callable[[], None] = _nothing
        self._ended = anyio.Event()
        self._outcome: Outcome | None = None
        self._error: Exception | None = None

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._ended.set()
        self.on_end()

    def spoil(self, error: Exception) -> None:
        """The caller's own callback raised: the caller gets that, whatever the outcome."""
        self._error = self._error or error

    def abandon(self, cause: BaseException | None) -> None:
        """The engine ended without an outcome."""
        if self._outcome is None:
            error = EngineClosed("the engine ended before the request did")
            error.__cause__ = cause
            self._error = error
            self._ended.set()
            self.on_end()

    async def wait(self) -> None:
        await self._ended.wait()

    def result(self) -> Extension | Scores | Pinned:
        """The value, or raise what ended the request."""
        if self._error is not None:
            raise self._error
        outcome = self._outcome
        assert outcome is not None
        if outcome.error is not None:
            raise outcome.error
        assert outcome.value is not None
        return outcome.value


def _nothing() -> None:
    return None
