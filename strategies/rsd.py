"""A reward model mixes the steps of a draft model and of the policy."""

import enum
import math
from typing import Annotated

from msgspec import Meta

from ..engine.sampling.params import SamplingParams
from .base import Needs, Search, Strategy
from .step_speculation import Limits, speculate_steps


class Mixing(enum.StrEnum):
    """The weighting function omega: how likely a drafted step of reward r stays."""

    STEP = "step"
    CLIP = "clip"
    LOGISTIC = "logistic"
    CONSTANT = "constant"


def mixing_weight(mixing: Mixing, reward: float, delta: float, slope: float) -> float:
    """omega(r) in [0, 1]: 1 from `delta` on and 0 below; r itself; 1 / (1 + exp(-slope (r - delta)));
    `delta` for any r."""
    match mixing:
        case Mixing.STEP:
            return float(reward >= delta)
        case Mixing.CLIP:
            return min(1.0, max(0.0, reward))
        case Mixing.LOGISTIC:
            return 0.5 * (1.0 + math.tanh(slope * (reward - delta) / 2.0))
        case Mixing.CONSTANT:
            return delta


class RewardGuidedSpeculation(Strategy, tag="rsd", kw_only=True, frozen=True):
    """Mix the steps of the draft model and of the policy by their reward.

    The draft model writes each step; it stays with the probability omega(r) of its reward r, else the policy
    writes one instead (reward-guided speculative decoding, Liao et al. 2025, arXiv 2501.19324). So a step is
    distributed as omega q + (1 - E_q omega) p. With `mixing=step`, the paper's choice, it stays where
    r >= `delta`; `slope` is that of `mixing=logistic`.

    Other than in SpecReason the judge is a process reward model, its verdict may be drawn, every step is
    drafted, and decoding is greedy by default. At most `max_steps` steps; `patience` steps in a row that are
    empty or repeat the one before end it too. What the reward model cannot tell is written by the policy.
    `temperature` None: the model's own sampling.

    Not lossless: it is biased towards reward.
    """

    needs = Needs(step_scores=True, models=("draft",))
    lossless = False

    delta: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.7
    mixing: Mixing = Mixing.STEP
    slope: Annotated[float, Meta(gt=0.0, le=1000.0)] = 10.0
    max_steps: Annotated[int, Meta(ge=1)] = 100
    step_tokens: Annotated[int, Meta(ge=1)] = 2048
    patience: Annotated[int, Meta(ge=1)] = 5
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = 0.0

    async def run(self, search: Search) -> None:
        rng = search.root.rng

        def accepts(reward: float) -> bool:
            return rng.random() < mixing_weight(self.mixing, reward, self.delta, self.slope)

        sampling = None if self.temperature is None else SamplingParams(temperature=self.temperature)
        limits = Limits(steps=self.max_steps, step_tokens=self.step_tokens, patience=self.patience)
        await speculate_steps(search, accepts, sampling, limits)
