"""Samples until one answer has a large share of them."""

from typing import Annotated

from msgspec import Meta

from .base import Search, Select, Strategy
from .samples import draw_until
from .votes import Vote, leading_share


class DynamicVoting(Strategy, tag="dynamic_voting", kw_only=True, frozen=True):
    """Draw samples until one answer leads by far (after dynamic voting, Xue et al. 2023, Findings of EMNLP).

    It stops where the leader has a share of at least `theta` of the samples, after `n_min` of them at the
    earliest and `n` at most. An abstention is a sample for no answer. It is asked after each sample in the
    order of branch ids, and `wave` of them run side by side; the vote is over all that ended. No verifier is
    asked. `temperature` None: the model's own sampling; a number samples at it from the whole distribution.
    """

    n: Annotated[int, Meta(ge=1, le=4096)] = 40
    n_min: Annotated[int, Meta(ge=1, le=4096)] = 3
    theta: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.8
    wave: Annotated[int, Meta(ge=1, le=4096)] = 1
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None

    async def run(self, search: Search) -> None:
        await draw_until(search, self.sure, n=self.n, wave=self.wave, temperature=self.temperature)

    def sure(self, votes: list[Vote]) -> bool:
        """Whether these votes suffice."""
        return len(votes) >= self.n_min and leading_share(votes) >= self.theta

    def selection(self) -> Select:
        return Select.MAJORITY
