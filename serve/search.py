"""The one place where the server runs searches."""

from collections.abc import Sequence
from typing import Protocol

import anyio

from ..reasoning.events import Event
from ..reasoning.reasoner import Reasoner
from ..reasoning.solution import Reason, Solution
from .errors import ApiError, bad_request
from .reading import Ask
from .settings import Settings


class Watcher(Protocol):
    """Hears of the searches of a request, on the event loop; `index` is that of a choice."""

    def receive(self, index: int, event: Event) -> None:
        """An event of the search of choice `index`."""
        ...

    def choose(self, index: int, solution: Solution) -> None:
        """That search is over."""
        ...


class Searcher:
    """Runs the searches of requests on one reasoner."""

    def __init__(self, reasoner: Reasoner, settings: Settings) -> None:
        self.reasoner = reasoner
        self._settings = settings

    async def run(
        self, asks: Sequence[Ask], namespace: str, watchers: Sequence[Watcher] = (), *, deltas: bool = False
    ) -> list[Solution]:
        """The solutions of all searches of one request, side by side, in their order. `deltas`: the watchers
        hear of text as it comes.

        Raises what the first that cannot be answered raises; the others are cancelled then. Cancelling the
        caller cancels all, and their branches are free before it returns.
        """
        solutions: dict[int, Solution] = {}
        failures: list[Exception] = []

        async def one(ask: Ask) -> None:
            try:
                solution = solutions[ask.index] = await self._solve(ask, namespace, watchers, deltas)
                for watcher in watchers:
                    watcher.choose(ask.index, solution)
            except Exception as error:
                failures.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for ask in asks:
                group.start_soon(one, ask)
        if failures:
            raise failures[0]
        return [solutions[ask.index] for ask in asks]

    async def _solve(self, ask: Ask, namespace: str, watchers: Sequence[Watcher], deltas: bool) -> Solution:
        def tell(event: Event) -> None:
            for watcher in watchers:
                watcher.receive(ask.index, event)

        solution = await self.reasoner.solve(
            ask.problem,
            ask.strategy,
            ask.budget,
            verifier=self._settings.verifier,
            seed=ask.seed,
            sampling=ask.sampling,
            max_tokens=ask.max_tokens,
            think=ask.think,
            step=self._settings.step,
            speculate=self._settings.speculate,
            stop=ask.stop,
            prompt_logprobs=ask.echoed,
            schema=ask.schema,
            tools=ask.tools,
            tool_choice=ask.tool_choice,
            namespace=namespace,
            on_event=tell if watchers else None,
            deltas=deltas,
        )
        if ask.echoed is not None and solution.prompt is None:
            raise bad_request("echo: the budget does not cover the prompt's log-probabilities; give more")
        if solution.reason is Reason.FAILED:
            raise ApiError(500, "the search failed", kind="server_error", code="search_failed")
        return solution
