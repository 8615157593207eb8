"""Many solutions side by side, one of them chosen."""

from typing import Annotated

from msgspec import Meta

from ..engine.sampling.params import SamplingParams
from .base import Branch, Search, Select, Strategy
from .conclusion import conclude_all, reach_answer

_BY_SCORE = (Select.MAX_SCORE, Select.WEIGHTED_VOTE)


class BestOfN(Strategy, tag="best_of_n", kw_only=True, frozen=True):
    """Sample `n` complete solutions in parallel and keep the best one (Cobbe et al. 2021).

    `n` None: as many as the budget allows. `temperature` None: the model's own sampling; a number samples
    at it from the whole distribution. `stop_on_verified`: end as soon as a sound verifier passes a
    candidate. Without a verifier, selection by score is a majority vote.
    """

    n: Annotated[int, Meta(ge=1, le=4096)] | None = 16
    select: Select = Select.WEIGHTED_VOTE
    stop_on_verified: bool = True
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None

    async def run(self, search: Search) -> None:
        if search.verifier is None and self.select in _BY_SCORE:
            search.note(f"no verifier: {self.select} falls back to majority")
        sampling = None if self.temperature is None else SamplingParams(temperature=self.temperature)
        cut: set[str] = set()

        async def sample(branch: Branch) -> None:
            if not await reach_answer(branch, sampling):
                cut.add(branch.id)

        branches = search.root.fork(self.n)
        async with search.each(branches, sample) as done:
            async for branch in done:
                if branch.id not in cut:
                    await branch.evaluate()
                    search.offer(branch)
        await conclude_all(search, (branch for branch in branches if branch.id in cut))

    def selection(self) -> Select:
        return self.select

    def stops_on_verified(self) -> bool:
        return self.stop_on_verified
