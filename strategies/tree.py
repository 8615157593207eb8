"""What the tree strategies have in common: their parameters, and the growth that these ask for."""

from typing import Annotated

from msgspec import Meta

from ..engine.sampling.params import SamplingParams
from .base import Needs, Search, Select, Strategy
from .growth import Growth, Scoring

Count = Annotated[int, Meta(ge=1, le=4096)]


class TreeStrategy(Strategy, kw_only=True, frozen=True):
    """Base of the strategies that grow a tree of steps, led by a step verifier.

    `temperature` None: the model's own sampling; a number samples at it from the whole distribution. `dedup`:
    of siblings with the same tokens one is scored and goes on. Finished paths of the same tokens are one vote
    either way. `stop_on_verified`: end as soon as a sound verifier passes a candidate.
    """

    needs = Needs(step_scores=True)

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = 0.8
    dedup: bool = True
    select: Select = Select.WEIGHTED_VOTE
    stop_on_verified: bool = True

    def growth(self, search: Search, *, lookahead: int = 0, scoring: Scoring = Scoring.ALL) -> Growth:
        """The growth of one search; see `Growth`."""
        sampling = None if self.temperature is None else SamplingParams(temperature=self.temperature)
        return Growth(search, sampling=sampling, lookahead=lookahead, dedup=self.dedup, scoring=scoring)

    def selection(self) -> Select:
        return self.select

    def stops_on_verified(self) -> bool:
        return self.stop_on_verified


def shares(places: int, holders: int) -> list[int]:
    """`places` dealt to `holders` equally; the first ones get what is left over: 16 to 3 is 6, 5, 5."""
    each, over = divmod(places, holders)
    return [each + (index < over) for index in range(holders)]
