"""One chain of attempts, each of which reads those before it."""

from typing import Annotated

from msgspec import Meta

from ..verifiers.revision import REFINE
from .base import Branch, Search, Select, Strategy
from .revision import answer_all, open_revision, tell_fallback


class Refine(Strategy, tag="refine", kw_only=True, frozen=True):
    """Answer, then `rounds` times give a better answer with the last `k` attempts in the prompt.

    Sequential revision (Snell et al. 2024, arXiv 2408.03314); Self-Refine (Madaan et al. 2023, arXiv
    2303.17651).

    The answer is chosen within the chain by `select`. The task says how attempts are put to the model. Where
    nothing outside of the model judges them, later answers are often worse than earlier ones.
    """

    rounds: Annotated[int, Meta(ge=0, le=4096)] = 4
    k: Annotated[int, Meta(ge=1, le=64)] = 4
    select: Select = Select.WEIGHTED_VOTE
    stop_on_verified: bool = True

    async def run(self, search: Search) -> None:
        tell_fallback(search, self.select)
        attempts: list[Branch] = []

        def take(branch: Branch) -> None:
            search.offer(branch)
            attempts.append(branch)

        await answer_all(search, [search.root], take)
        for _ in range(self.rounds):
            if not attempts:
                return
            earlier = len(attempts)
            branch = await open_revision(search, attempts[-self.k :], REFINE)
            if branch is None:
                return
            await answer_all(search, [branch], take)
            if len(attempts) == earlier and search.budget.spent:
                return

    def selection(self) -> Select:
        return self.select

    def stops_on_verified(self) -> bool:
        return self.stop_on_verified
