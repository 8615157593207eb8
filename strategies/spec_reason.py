"""A small model drafts each step, a large one accepts or rewrites it."""

from typing import Annotated

from msgspec import Meta

from ..engine.sampling.params import SamplingParams
from .base import Needs, Search, Strategy
from .step_speculation import Limits, speculate_steps


class SpecReason(Strategy, tag="spec_reason", kw_only=True, frozen=True):
    """Let the draft model write each step of thinking, and the policy rewrite those of a low score.

    A drafted step whose score is below `accept` is dropped (SpecReason, Pan et al. 2025, arXiv 2504.07891).
    The paper lets the policy score a step from 0 to 9 with one token and accepts from 7: `--verifier judge`.
    With `--prm` the reward model scores. What the scorer cannot tell is rewritten. `first_n`: the policy
    writes the first steps. `step_tokens`: the longest step (512; the search's own limit holds too). It ends
    with the thinking, after `max_steps`, or after `patience` steps in a row that are empty or repeat the one
    before; the policy writes the answer. Rejected drafts and scoring are charged, which the published code
    does not do. `temperature` None: the model's own sampling.

    Not lossless: what the draft model writes well enough stays.
    """

    needs = Needs(step_scores=True, models=("draft",))
    lossless = False

    accept: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.7
    first_n: Annotated[int, Meta(ge=0)] = 0
    step_tokens: Annotated[int, Meta(ge=1)] = 512
    max_steps: Annotated[int, Meta(ge=1)] = 1000
    patience: Annotated[int, Meta(ge=1)] = 5
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = 0.6
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.95

    async def run(self, search: Search) -> None:
        sampling = None
        if self.temperature is not None:
            sampling = SamplingParams(temperature=self.temperature, top_p=self.top_p)
        limits = Limits(steps=self.max_steps, step_tokens=self.step_tokens, patience=self.patience)
        await speculate_steps(search, self._accepts, sampling, limits, first_n=self.first_n)

    def _accepts(self, score: float) -> bool:
        return score >= self.accept
