"""One chain of thought, the most likely token at each position."""

from ..engine.sampling.params import GREEDY
from .base import Search, Strategy
from .conclusion import conclude_all, reach_answer


class Greedy(Strategy, tag="greedy", kw_only=True, frozen=True):
    """Follow the most likely token until the answer stands: one chain, temperature 0."""

    async def run(self, search: Search) -> None:
        branch = search.root
        if not await reach_answer(branch, GREEDY):
            await conclude_all(search, [branch])
            return
        await branch.evaluate()
        search.offer(branch)

    def only_path(self) -> tuple[int, ...] | None:
        return ()
