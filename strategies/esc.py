"""Windows of samples until one of them agrees."""

from typing import Annotated

from msgspec import Meta

from .base import Search, Select, Strategy
from .samples import Samples
from .votes import unanimous


class EarlyStoppingSelfConsistency(Strategy, tag="esc", kw_only=True, frozen=True):
    """Draw windows of samples until those of one agree, then vote (ESC, Li et al. 2024, arXiv 2401.10480).

    The vote is over everything drawn. `n`: samples at most (L in the paper, which takes windows of 5 and 40
    samples, for MATH of 8 and 64). A window with a sample that has no answer, or failed, does not agree. No
    verifier is asked. `temperature` None: the model's own sampling (the paper: 0.7); a number samples at it
    from the whole distribution.
    """

    window: Annotated[int, Meta(ge=1, le=4096)] = 5
    n: Annotated[int, Meta(ge=1, le=4096)] = 40
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None

    async def run(self, search: Search) -> None:
        samples = Samples(search, self.temperature)
        while len(samples) < self.n and not search.budget.spent:
            size = min(self.window, self.n - len(samples))
            await samples.draw(size)
            if len(samples) < self.n and unanimous((await samples.prefix())[-size:]):
                search.note(f"window agrees after {len(samples)} of at most {self.n} samples")
                return
        await samples.note_tie()

    def selection(self) -> Select:
        return Select.MAJORITY
