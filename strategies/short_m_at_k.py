"""The first to finish vote."""

from typing import Annotated

from msgspec import Meta

from ..engine.errors import UsageError
from .base import Search, Select, Strategy
from .samples import Samples
from .votes import Pending


class ShortMAtK(Strategy, tag="short_m_at_k", kw_only=True, frozen=True):
    """Run `k` solutions, and let the `m` that finish first vote (Hassid et al. 2025, arXiv 2505.17813).

    The others are stopped then; of a tie the shortest wins (the paper: m = 1 and m = 3). To finish is to
    end with an answer. First is who took the fewest tokens, then the lowest branch id, where the search is
    reproducible; by the wall clock elsewhere. No verifier is asked. `temperature` None: the model's own
    sampling; a number samples at it from the whole distribution.
    """

    k: Annotated[int, Meta(ge=1, le=4096)] = 8
    m: Annotated[int, Meta(ge=1, le=4096)] = 3
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.m > self.k:
            raise UsageError(f"strategy short_m_at_k: m={self.m}: give at most k={self.k}")

    async def run(self, search: Search) -> None:
        samples = Samples(search, self.temperature)

        async def enough() -> bool:
            votes = await samples.votes()
            return sum(not isinstance(vote, Pending | None) for vote in votes) >= self.m

        await samples.draw(self.k, enough)

    def selection(self) -> Select:
        return Select.SHORT_MAJORITY
