"""Many traces, voting with their confidence; those that lose it are stopped."""

import enum
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from ..engine.errors import UsageError
from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from ..verifiers.token_confidence import (
    TOP_K,
    WINDOW_TOKENS,
    GroupConfidence,
    bottom_groups,
    lowest_group,
    mean_confidence,
    stop_threshold,
    tail_confidence,
)
from .base import Branch, Needs, Search, Select, Strategy
from .conclusion import concluded, goes_on, reach_answer
from .confidence_vote import ConfidenceVote

Count = Annotated[int, Meta(ge=1, le=4096)]
Tokens = Annotated[int, Meta(ge=1)]


class Mode(enum.StrEnum):
    """Filter the traces when all are there, or stop weak ones while they are written."""

    OFFLINE = "offline"
    ONLINE = "online"


class Measure(enum.StrEnum):
    """The confidence of a trace: of its weakest group, of the weakest tenth of its groups, of its last
    `window` tokens, or of all."""

    LOWEST = "lowest"
    BOTTOM = "bottom"
    TAIL = "tail"
    MEAN = "mean"


_MEASURES: dict[Measure, Callable[[Sequence[float], int], float | None]] = {
    Measure.LOWEST: lowest_group,
    Measure.BOTTOM: bottom_groups,
    Measure.TAIL: tail_confidence,
    Measure.MEAN: lambda values, window: mean_confidence(values),
}


class DeepConf(Strategy, tag="deepconf", kw_only=True, frozen=True):
    """Vote among traces weighted by their confidence, and stop those that lose it.

    DeepConf (Fu et al. 2025, arXiv 2508.15260). The confidence of a token is the mean negative
    log-probability of the `top_k` most likely ones; a group is `window` tokens in a row (2048; take fewer for
    models that write less: a trace shorter than the window is one group, its plain mean).

    offline: `n` traces; the `eta` percent with the highest confidence (`measure`) vote. online: the first
    `warmup` traces give the threshold, the percentile 100 - `eta` of their lowest group confidence; a later
    trace is stopped once a full window lies below it, and does not vote, nor do warm-up traces below it; all
    ends when the leader has the share `beta` of the weight. The window is looked at every `chunk` tokens: a
    stopped trace is charged for up to `chunk` - 1 tokens more than it needed. With a budget of tokens no more
    traces run side by side than it covers at their mean length so far.

    The paper has n=512, and eta=10 or 90. A reward model is not asked; a sound verifier is.
    """

    needs = Needs(capabilities=("token_stats",))

    n: Count = 64
    mode: Mode = Mode.ONLINE
    eta: Annotated[float, Meta(gt=0.0, le=100.0)] = 10.0
    measure: Measure = Measure.LOWEST
    warmup: Count = 16
    beta: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.95
    window: Tokens = WINDOW_TOKENS
    top_k: Annotated[int, Meta(ge=1, le=1000)] = TOP_K
    chunk: Tokens = 32
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 0.6
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == Mode.ONLINE and self.measure != Measure.LOWEST:
            raise UsageError(
                f"strategy deepconf: measure={self.measure}: mode=online goes by the lowest group; "
                "give measure=lowest, or mode=offline"
            )

    async def run(self, search: Search) -> None:
        traces = _Traces(self, search)
        if self.mode == Mode.OFFLINE:
            await traces.sample(self.n)
            traces.note_filter()
            return
        await traces.sample(min(self.warmup, self.n))
        await traces.end_warmup()
        while traces.open and traces.begun < self.n and not search.budget.spent:
            await traces.sample(traces.affordable(self.n - traces.begun))
        traces.note_stops()

    def selection(self) -> Select:
        return Select.WEIGHTED_VOTE


class _Trace(msgspec.Struct, frozen=True):
    """A finished trace; `confidence` is None where no token of it was looked at."""

    branch: Branch
    confidence: float | None


class _Traces:
    """All traces of one problem; those that finished vote. `threshold` is None offline and during the
    warm-up; `open` until the leader's share ends the vote."""

    def __init__(self, plan: DeepConf, search: Search) -> None:
        self.begun = 0
        self.open = True
        self.threshold: float | None = None
        self._plan = plan
        self._search = search
        self._vote = ConfidenceVote(search)
        self._finished: list[_Trace] = []
        self._warm = 0
        self._stopped = 0
        self._sampling = SamplingParams(
            temperature=plan.temperature, top_p=plan.top_p, stats_top_k=plan.top_k
        )

    async def sample(self, n: int) -> None:
        """Write `n` more traces side by side, until all ended or the vote is closed."""
        batch = self._search.root.fork(n)
        self.begun += n
        cut: set[str] = set()

        async def trace(branch: Branch) -> None:
            if not await self._write(branch):
                cut.add(branch.id)

        async with self._search.each(batch, trace) as done:
            async for branch in done:
                if branch.live and branch.id not in cut:
                    await self._finish(branch)
                    if not self.open:
                        self._prune(batch)
                        return
        async for branch in concluded(self._search, [branch for branch in batch if branch.id in cut]):
            await self._finish(branch)

    async def end_warmup(self) -> None:
        """Fix the threshold; below it no trace votes."""
        lowest = [trace.confidence for trace in self._finished if trace.confidence is not None]
        if not lowest:
            self._search.note("no warm-up trace has a confidence: no threshold")
            self.open = False
            return
        self.threshold = stop_threshold(lowest, self._plan.eta)
        self._warm = len(self._finished)
        self._search.note(
            f"traces stop below a group confidence of {self.threshold:.4g}",
            threshold=self.threshold,
            lowest=lowest,
        )
        await self._vote.cast(self._weights())
        await self._close_if_agreed()

    def affordable(self, most: int) -> int:
        """How many traces what is left of the budget covers at their mean length so far, `most` at most."""
        left = self._search.budget.tokens_left
        lengths = [len(trace.branch.tokens) for trace in self._finished]
        if left is None or not sum(lengths):
            return most
        return max(1, min(most, left * len(lengths) // sum(lengths)))

    def note_filter(self) -> None:
        """Tell which traces vote, offline."""
        weights = self._weights()
        voting = [branch.id for branch, weight in weights if weight > 0.0]
        self._search.note(f"{len(voting)} of {len(weights)} traces vote", voting=voting)

    def note_stops(self) -> None:
        """Tell how many traces were stopped, online."""
        self._search.note(
            f"{len(self._finished)} traces finished, {self._stopped} were stopped by their confidence",
            finished=len(self._finished),
            stopped=self._stopped,
        )

    async def _write(self, branch: Branch) -> bool:
        """Write a trace, and stop it below the threshold. False where a limit cut it, and it should be
        concluded."""
        plan, threshold = self._plan, self.threshold
        if threshold is None:
            return await reach_answer(branch, self._sampling)
        group = GroupConfidence(plan.window)
        while True:
            step = await branch.extend(Until.ANSWER, max_tokens=plan.chunk, sampling=self._sampling)
            means = [group.push(stats.confidence) for stats in step.stats]
            low = min((mean for mean in means if mean is not None), default=math.inf)
            if low < threshold:
                self._stopped += 1
                branch.prune(f"stopped: group confidence {low:.4g} below {threshold:.4g}")
                return True
            if branch.complete or not goes_on(step, plan.chunk):
                return branch.complete or step.stop not in (Stop.BUDGET, Stop.LENGTH)

    async def _finish(self, branch: Branch) -> None:
        """Let a finished trace vote."""
        if self._search.verifier is not None and self._search.verifier.sound:
            await branch.evaluate()
        values = [stats.confidence for step in branch.steps for stats in step.stats]
        confidence = _MEASURES[self._plan.measure](values, self._plan.window)
        self._finished.append(_Trace(branch, confidence))
        await self._vote.cast(self._weights())
        await self._close_if_agreed()

    def _weights(self) -> list[tuple[Branch, float]]:
        """What each finished trace weighs now: its confidence, or nothing where it is filtered out."""
        known = [trace.confidence for trace in self._finished if trace.confidence is not None]
        if self._plan.mode == Mode.OFFLINE:
            least, filtered = (stop_threshold(known, self._plan.eta) if known else 0.0), len(self._finished)
        else:
            least, filtered = self.threshold or 0.0, self._warm
        return [
            (trace.branch, _weight(trace.confidence, least if index < filtered else 0.0))
            for index, trace in enumerate(self._finished)
        ]

    async def _close_if_agreed(self) -> None:
        """End the vote where the leader has the share beta; not offline, nor during the warm-up."""
        if self.threshold is None:
            return
        share = await self._vote.share()
        if share >= self._plan.beta:
            self.open = False
            self._search.note(
                f"the vote agrees after {len(self._finished)} finished of {self.begun} traces", share=share
            )

    def _prune(self, batch: list[Branch]) -> None:
        """Let go of what the vote does not wait for."""
        finished = {trace.branch.id for trace in self._finished}
        for branch in batch:
            if branch.id not in finished:
                branch.prune("the vote agrees")


def _weight(confidence: float | None, least: float) -> float:
    return confidence if confidence is not None and confidence >= least else 0.0
