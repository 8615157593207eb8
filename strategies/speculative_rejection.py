"""A batch too large for the memory, whose worst part is rejected each time the memory is full."""

import enum
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Until
from .base import Branch, Needs, Search, Select, Strategy
from .computed import Computed
from .conclusion import concluded, goes_on

ANSWER_TOKENS_MAX = 256
"""Positions kept free at most, so that the last trace can conclude."""


class PartialScore(enum.StrEnum):
    """What ranks unfinished traces: the step verifier, or their mean log-probability."""

    VERIFIER = "verifier"
    LOGPROB = "logprob"


def kept_count(live: int, alpha: float) -> int:
    """How many of `live` traces survive a rejection of the share `alpha`: always one at least, and always
    fewer than before where there are several, so that memory comes free. Exact in decimals: no rounding to
    even, and no float that is a hair too small."""
    rejected = int(Fraction(str(alpha)) * live)
    return max(1, min(live - 1, live - rejected))


def ranked(scores: Sequence[float | None]) -> list[int]:
    """Indices from the best score to the worst; equals in their order, unknown scores as the mean of the
    known ones."""
    known = [score for score in scores if score is not None]
    neutral = math.fsum(known) / len(known) if known else 0.0
    filled = [neutral if score is None else score for score in scores]
    return sorted(range(len(filled)), key=lambda index: -filled[index])


class SpeculativeRejection(Strategy, tag="speculative_rejection", kw_only=True, frozen=True):
    """Begin more traces than the memory holds, and reject the worst each time it is full.

    Each time the partial traces are scored, and the worst share `alpha` of them goes, so that the others can
    go on; the best finished one is the answer (Speculative Rejection, Sun et al. 2024, arXiv 2410.20290).

    Memory is counted in KV positions, the prompt's included: `kv_tokens`, and the budget's. Without both it
    is what `n` traces of `round_tokens` tokens need. At most `n` traces begin, as many as the memory holds
    at `round_tokens` tokens each; half of a budget of tokens is kept for those that survive the first
    rejection. Finished traces keep their score, are not rejected, and give their memory back.

    `score`: what ranks partial traces; None: the step verifier where there is one, else the mean
    log-probability. `temperature` None: the model's own sampling.
    """

    n: Annotated[int, Meta(ge=1, le=4096)] = 32
    alpha: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.5
    kv_tokens: Annotated[int, Meta(ge=1)] | None = None
    round_tokens: Annotated[int, Meta(ge=1)] = 32
    score: PartialScore | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None

    async def run(self, search: Search) -> None:
        score = self.score or (
            PartialScore.LOGPROB if search.step_verifier is None else PartialScore.VERIFIER
        )
        sampling = None if self.temperature is None else SamplingParams(temperature=self.temperature)
        await _Batch(self, search, score, sampling).run()

    def requirements(self) -> Needs:
        return super().requirements().joined(Needs(step_scores=self.score == PartialScore.VERIFIER))

    def selection(self) -> Select:
        return Select.MAX_SCORE


class _Batch:
    """The traces that share the memory. `live` go on; `cut` were ended by another limit than the memory."""

    def __init__(
        self,
        plan: SpeculativeRejection,
        search: Search,
        score: PartialScore,
        sampling: SamplingParams | None,
    ) -> None:
        self._plan = plan
        self._search = search
        self._score = score
        self._sampling = sampling
        self._round = 0
        self._memory = 0
        self._kept_free = 0
        self._live: list[Branch] = []
        self._cut: list[Branch] = []

    async def run(self) -> None:
        """Grow and reject until no trace goes on; what did not finish concludes."""
        search = self._search
        self._begin()
        while self._live and not search.budget.spent:
            tokens = self._free // len(self._live)
            if tokens:
                await self._grow(tokens)
            elif len(self._live) > 1:
                await self._reject()
            else:
                break
        async for branch in concluded(search, [*self._live, *self._cut]):
            await self._finish(branch)
            search.offer(branch)

    @property
    def _free(self) -> int:
        """Positions that the batch may still own."""
        return max(0, self._memory - self._kept_free - self._search.budget.kv_owned)

    def _begin(self) -> None:
        """Fork the batch, and fix the memory."""
        plan, search = self._plan, self._search
        width = max(1, min(plan.n, self._room() // plan.round_tokens))
        self._live = search.root.fork(width)
        room = self._room()  # the prompt's positions are owned now
        self._memory = search.budget.kv_owned + room
        self._kept_free = min(ANSWER_TOKENS_MAX, room // 8)
        search.note(
            f"{width} traces in a memory of {self._memory} KV positions, ranked by {self._score}",
            width=width,
            memory=self._memory,
        )

    def _room(self) -> int:
        """Positions that the traces may own beside those that are owned now."""
        plan, budget = self._plan, self._search.budget
        rooms = [plan.kv_tokens - budget.kv_owned] if plan.kv_tokens is not None else []
        if budget.kv_left is not None:
            rooms.append(budget.kv_left)
        if not rooms:
            rooms.append(plan.n * plan.round_tokens)
        if budget.tokens_left is not None:
            rooms.append(budget.tokens_left // 2)
        return max(0, min(rooms))

    async def _grow(self, tokens: int) -> None:
        """`tokens` more for each live trace: no more than the memory holds of all of them."""
        going: set[str] = set()
        finished: set[str] = set()

        async def grow(branch: Branch) -> None:
            step = await branch.extend(Until.ANSWER, max_tokens=tokens, sampling=self._sampling)
            if branch.complete:
                finished.add(branch.id)
                await self._finish(branch)
            elif goes_on(step, tokens):
                going.add(branch.id)

        batch = self._live
        async with self._search.each(batch, grow) as done:
            async for branch in done:
                if branch.id in finished:
                    self._search.offer(branch)
                    branch.prune("finished: its memory is free")
        self._live = [branch for branch in batch if branch.id in going and branch.live]
        self._cut += [branch for branch in batch if branch.live and branch.id not in going]

    async def _finish(self, branch: Branch) -> None:
        """The last check of a finished trace, and its score."""
        verifier = self._search.verifier
        if self._score == PartialScore.VERIFIER or (verifier is not None and verifier.sound):
            await branch.evaluate()
        elif branch.mean_logprob is not None:
            await branch.evaluate(Computed("probability", math.exp(min(0.0, branch.mean_logprob))))

    async def _reject(self) -> None:
        """The memory is full: keep the best of the live traces, and free what the others own."""
        self._round += 1
        batch = await self._scored(self._live)
        scores = [self._value(branch) for branch in batch]
        order = ranked(scores)
        kept = kept_count(len(batch), self._plan.alpha) if batch else 0
        for index in order[kept:]:
            batch[index].prune(f"rejected in round {self._round}: {_shown(scores[index])}")
        self._live = [batch[index] for index in sorted(order[:kept])]
        self._search.note(
            f"memory full: kept {kept} of {len(batch)} traces",
            round=self._round,
            kept=[branch.id for branch in self._live],
            scores=dict(zip([branch.id for branch in batch], scores, strict=True)),
        )

    async def _scored(self, batch: list[Branch]) -> list[Branch]:
        """The traces that could be scored without failing, in their order."""
        if self._score == PartialScore.LOGPROB:
            return batch
        scored: set[str] = set()

        async def score(branch: Branch) -> None:
            await branch.evaluate(self._search.step_verifier)

        async with self._search.each(batch, score) as done:
            async for branch in done:
                scored.add(branch.id)
        return [branch for branch in batch if branch.id in scored]

    def _value(self, branch: Branch) -> float | None:
        return branch.mean_logprob if self._score == PartialScore.LOGPROB else branch.score


def _shown(score: float | None) -> str:
    return "no score" if score is None else f"score {score:.4f}"
