"""Many solutions side by side, one of them chosen."""

from typing import Annotated

from msgspec import Meta

from ..engine.errors import UsageError
from ..engine.sampling.params import SamplingParams
from .base import Branch, Search, Select, Strategy
from .conclusion import conclude_all, reach_answer

_BY_SCORE = (Select.MAX_SCORE, Select.WEIGHTED_VOTE)


class BestOfN(Strategy, tag="best_of_n", kw_only=True, frozen=True):
    """Sample `n` complete solutions in parallel and keep the best one (Cobbe et al. 2021).

    `n` None: as many as the budget allows. `temperature` None: the model's own sampling; a number samples
    at it from the whole distribution. `stop_on_verified`: end as soon as a sound verifier passes a
    candidate. Without a verifier, selection by score is a majority vote.

    `parallel`: how many are written at a time, None for all. With a sound verifier one after the other costs
    less, since the first pass ends the search, and takes longer.

    `inner`: the strategy that finds each of the `n` solutions, all from one budget; None: one plain sample
    each. What it chooses is the one candidate of its branch, with the last check where it had none.
    """

    n: Annotated[int, Meta(ge=1, le=4096)] | None = 16
    select: Select = Select.WEIGHTED_VOTE
    stop_on_verified: bool = True
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    parallel: Annotated[int, Meta(ge=1, le=4096)] | None = None
    inner: Strategy | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner is not None and self.temperature is not None:
            raise UsageError(
                f"strategy best_of_n: temperature={self.temperature} is that of plain samples, and inner "
                "takes their place: leave it out, or give it to the inner strategy"
            )
        if self.inner is not None and self.n is None:
            raise UsageError("strategy best_of_n: n=none with inner: say how many, such as n=8")

    async def run(self, search: Search) -> None:
        if search.verifier is None and self.select in _BY_SCORE:
            search.note(f"no verifier: {self.select} falls back to majority")
        branches = search.root.fork(self.n)
        at_a_time = self.parallel or len(branches)
        for start in range(0, len(branches), at_a_time):
            batch = branches[start : start + at_a_time]
            if self.inner is None:
                await self._sample(search, batch)
            else:
                await _solve_each(search, batch, self.inner)

    async def _sample(self, search: Search, branches: list[Branch]) -> None:
        sampling = None if self.temperature is None else SamplingParams(temperature=self.temperature)
        cut: set[str] = set()

        async def sample(branch: Branch) -> None:
            if await reach_answer(branch, sampling):
                await branch.evaluate()
            else:
                cut.add(branch.id)

        async with search.each(branches, sample) as done:
            async for branch in done:
                if branch.id not in cut:
                    search.offer(branch)
        await conclude_all(search, (branch for branch in branches if branch.id in cut))

    def only_path(self) -> tuple[int, ...] | None:
        # A nested search that comes to no answer offers nothing, so its text may not be the result's.
        return (0,) if self.n == 1 and self.inner is None else None

    def selection(self) -> Select:
        return self.select

    def stops_on_verified(self) -> bool:
        return self.stop_on_verified


async def _solve_each(search: Search, lanes: list[Branch], inner: Strategy) -> None:
    """Let `inner` search from each lane, all side by side, and offer what it chooses there."""

    async def solve(lane: Branch) -> None:
        async with search.scope(lane, inner) as inside:
            await inner.run(inside)
            await _check(inside)

    async with search.each(lanes, solve) as done:
        async for _ in done:
            pass


async def _check(search: Search) -> None:
    """Give the incumbent the last check where its strategy did not; one that is refuted gives way to the
    next."""
    asked: set[str] = set()
    while search.verifier is not None and (best := search.incumbent) is not None:
        if best.score is not None or best.id in asked or not best.live:
            break
        asked.add(best.id)
        await best.evaluate()
        search.offer(best)
