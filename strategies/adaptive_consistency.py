"""Samples one by one until the votes make their leader sure."""

import enum
from typing import Annotated

from msgspec import Meta

from .base import Search, Select, Strategy
from .posterior import beta_confidence, dirichlet_confidence, normalised_entropy
from .samples import draw_until
from .votes import Vote, leading_share, tally


class Criterion(enum.StrEnum):
    """When the votes are sure enough. Those of entropy and majority need two samples."""

    BETA = "beta"
    DIRICHLET = "dirichlet"
    ENTROPY = "entropy"
    MAJORITY = "majority"


THRESHOLDS = {
    Criterion.BETA: 0.95,
    Criterion.DIRICHLET: 0.95,
    Criterion.ENTROPY: 0.75,
    Criterion.MAJORITY: 0.8,
}
"""As published; see `AdaptiveConsistency.threshold`."""


class AdaptiveConsistency(Strategy, tag="adaptive_consistency", kw_only=True, frozen=True):
    """Draw samples until the votes make their leader sure (Aggarwal et al. 2023, arXiv 2305.11860).

    `n`: samples at most. `criterion`: beta stops where P(p > 1/2) >= `threshold` for p ~ Beta(a+1, b+1), a
    and b the votes of the first two answers; dirichlet the same against all of the first five; entropy where
    the normalised entropy of the votes is at most `threshold`; majority where the leader has that share of
    the samples. `threshold` None: as published, 0.95, 0.95, 0.75, 0.8. It is asked after each sample in the
    order of branch ids, and `wave` of them run side by side; the vote is over all that ended. Abstentions
    never vote. No verifier is asked. `temperature` None: the model's own sampling (the paper: 0.7); a number
    samples at it from the whole distribution.
    """

    n: Annotated[int, Meta(ge=1, le=4096)] = 40
    criterion: Criterion = Criterion.BETA
    threshold: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    wave: Annotated[int, Meta(ge=1, le=4096)] = 1
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None

    async def run(self, search: Search) -> None:
        await draw_until(search, self.sure, n=self.n, wave=self.wave, temperature=self.temperature)

    def sure(self, votes: list[Vote]) -> bool:
        """Whether these votes suffice."""
        counts = [count for _, count in tally(votes)]
        threshold = THRESHOLDS[self.criterion] if self.threshold is None else self.threshold
        if not counts:
            return False
        match self.criterion:
            case Criterion.BETA:
                return beta_confidence(counts[0], *(counts[1:2] or [0])) >= threshold
            case Criterion.DIRICHLET:
                return dirichlet_confidence(counts) >= threshold
            case Criterion.ENTROPY:
                return sum(counts) > 1 and normalised_entropy(counts) <= threshold
            case Criterion.MAJORITY:
                return len(votes) > 1 and leading_share(votes) >= threshold

    def selection(self) -> Select:
        return Select.MAJORITY
