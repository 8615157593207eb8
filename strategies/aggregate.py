"""Solutions made out of solutions, round after round."""

from typing import Annotated

from msgspec import Meta

from ..engine.errors import UsageError
from ..verifiers.revision import AGGREGATE
from .base import Branch, Search, Select, Strategy
from .revision import answer_all, open_revision, tell_fallback


class Aggregate(Strategy, tag="aggregate", kw_only=True, frozen=True):
    """Sample a population of solutions, and aggregate subsets of it into the next population.

    Recursive self-aggregation (Venkatraman et al. 2025, arXiv 2509.26626): `rounds` times `n` subsets of `k`
    are drawn from the population of `n`, and each is aggregated into one solution of the next (the paper's
    T, N and K).

    The answer is chosen by `select` among the last population; where its round was cut short, among it and
    the one before it.
    """

    n: Annotated[int, Meta(ge=1, le=4096)] = 16
    k: Annotated[int, Meta(ge=1, le=64)] = 4
    rounds: Annotated[int, Meta(ge=0, le=256)] = 2
    select: Select = Select.MAJORITY
    stop_on_verified: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k > self.n:
            raise UsageError(f"strategy aggregate: k={self.k} of n={self.n}: give a k of at most n")

    async def run(self, search: Search) -> None:
        tell_fallback(search, self.select)
        fresh: list[Branch] = []

        def take(branch: Branch) -> None:
            search.offer(branch)
            fresh.append(branch)

        await answer_all(search, search.root.fork(self.n), take)
        for number in range(1, self.rounds + 1):
            if not fresh:
                return
            population = fresh.copy()
            fresh.clear()
            roots = await self._draw(search, population)
            search.note("population", round=number, aggregates=len(roots), of=len(population))
            await answer_all(search, roots, take)
            if roots and len(fresh) == len(roots):
                search.retire(population)

    async def _draw(self, search: Search, population: list[Branch]) -> list[Branch]:
        """The roots of the next population: each shows `k` solutions of this one."""
        size = min(self.k, len(population))
        roots: list[Branch] = []
        for _ in range(self.n):
            subset = search.root.rng.sample(population, size)
            root = await open_revision(search, subset, AGGREGATE)
            if root is not None:
                roots.append(root)
        return roots

    def selection(self) -> Select:
        return self.select

    def stops_on_verified(self) -> bool:
        return self.stop_on_verified
