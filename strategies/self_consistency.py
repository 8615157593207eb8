"""A majority vote over sampled solutions."""

from typing import Annotated, Literal

from msgspec import Meta

from .base import Search, Select, Strategy
from .samples import Samples
from .votes import PENDING, certain_winner


class SelfConsistency(Strategy, tag="self_consistency", kw_only=True, frozen=True):
    """Sample `n` solutions and keep the most frequent answer (Wang et al. 2022, arXiv 2203.11171).

    Equal answers vote together, abstentions never; of a tie the first seen wins (the lowest branch id), which
    a note tells. No verifier is asked. `stop` lossless: end as soon as no outstanding sample can change the
    winner; the answer is that of the whole vote. `n` None: as many as the budget allows. `temperature` None:
    the model's own sampling (the paper: 0.7, or 0.5 with top-k 40); a number samples at it from the whole
    distribution.
    """

    n: Annotated[int, Meta(ge=1, le=4096)] | None = 40
    stop: Literal["lossless"] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None

    async def run(self, search: Search) -> None:
        samples = Samples(search, self.temperature)

        async def decided() -> bool:
            votes = await samples.votes()
            if PENDING not in votes or certain_winner(votes) is None:
                return False
            search.note(f"majority certain after {len(votes) - votes.count(PENDING)} of {len(votes)} samples")
            return True

        await samples.draw(self.n, None if self.stop is None else decided)
        await samples.note_tie()

    def only_path(self) -> tuple[int, ...] | None:
        return (0,) if self.n == 1 else None

    def selection(self) -> Select:
        return Select.MAJORITY
