"""How sure the policy was of what it wrote, from what the engine tells about each token: no other model, no
cost."""

import enum
import math
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta

from ..engine.sampling.detail import TokenStats
from .base import Candidate, Score, StepSpan
from .named import full_name
from .token_confidence import (
    BOTTOM_SHARE,
    TOP_K,
    WINDOW_TOKENS,
    bottom_groups,
    lowest_group,
    mean_confidence,
    tail_confidence,
)


class Measure(enum.StrEnum):
    """What is measured, and how it is brought to [0, 1], larger when surer, without changing any order.

    - `logprob`: mean log-probability x of the sampled tokens, as `exp(x)`.
    - `entropy`: mean entropy x of the tokens' distributions, as `exp(-x)`.
    - `self_certainty`: mean KL(uniform || p) of the tokens (Kang et al. 2025, arXiv 2502.18581), as
      `x / (1 + x)`.
    - `mean`, `lowest_group`, `bottom_groups`, `tail`: token confidences of DeepConf (Fu et al. 2025, arXiv
      2508.15260): their mean, the least mean of a window, the mean of the weakest windows, the mean of the
      last window, as `x / (1 + x)`.
    """

    LOGPROB = "logprob"
    ENTROPY = "entropy"
    SELF_CERTAINTY = "self_certainty"
    MEAN = "mean"
    LOWEST_GROUP = "lowest_group"
    BOTTOM_GROUPS = "bottom_groups"
    TAIL = "tail"


class ConfidenceVerifier:
    """Scores a candidate by how sure the policy was of its sampled tokens, thinking included.

    Never sound: a model may be sure and wrong. Forced tokens do not count. A step's own score is the mean
    over its tokens.
    """

    sound = False
    oracle = False
    step_scores = True
    models: tuple[str, ...] = ()

    def __init__(
        self,
        measure: Measure = Measure.BOTTOM_GROUPS,
        *,
        window: Annotated[int, Meta(ge=1, le=1 << 20)] = WINDOW_TOKENS,
        share: Annotated[float, Meta(gt=0.0, le=1.0)] = BOTTOM_SHARE,
        top_k: Annotated[int, Meta(ge=1, le=1000)] = TOP_K,
    ) -> None:
        """`window` is in tokens; `share` is that of the weakest groups; `top_k` as in `TokenStats`."""
        self.measure = measure
        self.window = window
        self.share = share
        self.stats_top_k = 0 if measure is Measure.LOGPROB else top_k
        settings = {"measure": (measure, Measure.BOTTOM_GROUPS), "window": (window, WINDOW_TOKENS)}
        settings |= {"share": (share, BOTTOM_SHARE), "top_k": (top_k, TOP_K)}
        given = {name: value for name, (value, default) in settings.items() if value != default}
        self.name = full_name("confidence", **given)

    async def score(self, candidate: Candidate) -> Score:
        """The measure over all sampled tokens; None where there are none, or one came without statistics."""
        figures = [self._figures(step) for step in candidate.steps]
        known = [part for part in figures if part is not None]
        if len(known) < len(figures):
            return Score(detail="tokens without statistics: this engine or this model does not tell them")
        value = self._whole([figure for part in known for figure in part])
        if value is None:
            return Score(detail="no sampled token")
        if math.isnan(value):
            return Score(detail="statistics that are not numbers")
        steps = [mean_confidence(part) for part in known]
        told = tuple(_unit(self.measure, step) for step in steps if step is not None)
        return Score(
            value=_unit(self.measure, value),
            steps=told if len(told) == len(steps) else (),
            detail=f"{self.measure} {value:.4g}",
        )

    def _figures(self, step: StepSpan) -> Sequence[float] | None:
        """One figure per sampled token of the step, None where they are missing."""
        if self.measure is Measure.LOGPROB:
            return step.logprobs
        if len(step.stats) != len(step.logprobs):
            return None
        return [_FIGURES[self.measure](stats) for stats in step.stats]

    def _whole(self, figures: Sequence[float]) -> float | None:
        match self.measure:
            case Measure.LOWEST_GROUP:
                return lowest_group(figures, self.window)
            case Measure.BOTTOM_GROUPS:
                return bottom_groups(figures, self.window, self.share)
            case Measure.TAIL:
                return tail_confidence(figures, self.window)
        return mean_confidence(figures)


def _confidence(stats: TokenStats) -> float:
    return stats.confidence


_FIGURES: dict[Measure, Callable[[TokenStats], float]] = {
    Measure.ENTROPY: lambda stats: stats.entropy,
    Measure.SELF_CERTAINTY: lambda stats: stats.self_certainty,
    Measure.MEAN: _confidence,
    Measure.LOWEST_GROUP: _confidence,
    Measure.BOTTOM_GROUPS: _confidence,
    Measure.TAIL: _confidence,
}


def _unit(measure: Measure, figure: float) -> float:
    """The figure in [0, 1], larger when surer. Rounding may put a log-probability or an entropy a hair on
    the wrong side of 0."""
    match measure:
        case Measure.LOGPROB:
            return math.exp(min(figure, 0.0))
        case Measure.ENTROPY:
            return math.exp(-max(figure, 0.0))
    return 1.0 if math.isinf(figure) else max(figure, 0.0) / (1.0 + max(figure, 0.0))
