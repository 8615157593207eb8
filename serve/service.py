"""What all requests of one server share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time

import msgspec

from ..engine.protocol import ModelInfo
from ..reasoning.events import Event
from ..reasoning.reasoner import Reasoner
from ..reasoning.solution import Solution
from .keys import Caller
from .line import Line
from .metrics import ServerMetrics
from .prompts import Prompts
from .quota import Rates
from .reading import Call
from .search import Searcher, Watcher
from .settings import Settings


class Spending(msgspec.Struct):
    """Tokens that the searches of one request spent so far, by choice."""

    tokens: dict[int, int] = {}

    def receive(self, index: int, event: Event) -> None:
        self.tokens[index] = max(self.tokens.get(index, 0), event.tokens_spent)

    def choose(self, index: int, solution: Solution) -> None:
        self.tokens[index] = solution.usage.tokens

    @property
    def total(self) -> int:
        return sum(self.tokens.values())


class Service:
    """The searcher, the line before it, and the rates of the keys."""

    def __init__(self, reasoner: Reasoner, settings: Settings) -> None:
        self.settings = settings
        self.started = int(time())
        self.line = Line(settings.limits)
        self.rates = Rates()
        self.metrics = ServerMetrics(self.line, reasoner.backend)
        self._searcher = Searcher(reasoner, settings)

    @property
    def info(self) -> ModelInfo:
        """The served model."""
        return self._searcher.reasoner.models["policy"]

    @property
    def prompts(self) -> Prompts:
        """The reader of raw prompts."""
        return Prompts(self.info, sentences=self._searcher.reasoner.source.tasks_only)

    @asynccontextmanager
    async def turn(self, call: Call, caller: Caller) -> AsyncIterator[Spending]:
        """Hold the request's tokens and a place among those that search, in the block; what it did not spend
        goes back to its key. Raises `ApiError` 429."""
        spending = Spending()
        reservation = self.rates.reserve(caller, call.tokens)
        try:
            async with self.line.turn(caller):
                yield spending
        finally:
            reservation.settle(spending.total)
            self.metrics.tokens.inc(spending.total)

    async def search(
        self, call: Call, caller: Caller, spending: Spending, watcher: Watcher | None = None
    ) -> list[Solution]:
        """Run the searches of the request. What they spend is counted as it goes, since a request may be
        left."""
        watchers = [spending] if watcher is None else [spending, watcher]
        deltas = call.stream and (
            call.search_events or any(ask.strategy.only_path() is not None for ask in call.asks)
        )
        return await self._searcher.run(call.asks, caller.namespace, watchers, deltas=deltas)
