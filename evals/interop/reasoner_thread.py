"""A reasoner for callers that are not on its event loop: synchronous ones, and those of another loop."""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.from_thread import BlockingPortal

from ...reasoning.cli.requests import Opening
from ...reasoning.reasoner import Reasoner
from ...reasoning.solution import Solution
from ...verifiers.problem import Problem

T = TypeVar("T")

_shared: dict[Opening, "ReasonerThread"] = {}
_opening = threading.Lock()


class ReasonerThread:
    """A reasoner on an event loop in a thread of its own, which ends with `close` or with the process.

    All callers' searches run side by side on the one engine.
    """

    def __init__(self, opening: Opening) -> None:
        """Open the models; blocks until they are. Raises what `Reasoner.open` raises."""
        ready: Future[tuple[Reasoner, BlockingPortal]] = Future()
        # A daemon: harnesses have no hook that would close it before the interpreter waits for its threads.
        self._thread = threading.Thread(
            target=_serve, args=(opening, ready), name="branchwise-reasoner", daemon=True
        )
        self._thread.start()
        self.reasoner, self._portal = ready.result()

    def start(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> "Future[T]":
        """Run `function(*arguments)` on the reasoner's loop; cancelling the future cancels it there."""
        return self._portal.start_task_soon(function, *arguments)

    async def solve(self, problem: Problem, **options: Any) -> Solution:
        """`Reasoner.solve`, from any event loop; cancelling it cancels the search."""

        async def solve() -> Solution:
            return await self.reasoner.solve(problem, **options)

        future = self.start(solve)
        try:
            return await anyio.to_thread.run_sync(
                future.result, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            future.cancel()

    def close(self) -> None:
        """Close the models; what is being solved is cancelled."""
        self._portal.call(self._portal.stop, True)
        self._thread.join()


def shared_reasoner(opening: Opening) -> ReasonerThread:
    """The process's reasoner for `opening`, opened by the first who asks. May block for seconds."""
    with _opening:
        if opening not in _shared:
            _shared[opening] = ReasonerThread(opening)
        return _shared[opening]


def _serve(opening: Opening, ready: "Future[tuple[Reasoner, BlockingPortal]]") -> None:
    async def serve() -> None:
        options = msgspec.structs.asdict(opening)
        async with Reasoner.open(**options, reproducible=True) as reasoner, BlockingPortal() as portal:
            ready.set_result((reasoner, portal))
            await portal.sleep_until_stopped()

    try:
        anyio.run(serve)
    except Exception as error:
        if ready.done():
            raise
        ready.set_exception(error)
