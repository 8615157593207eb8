"""Speculation on whole steps: a small model drafts one, a score decides, the policy rewrites what is
rejected."""

from collections.abc import Callable
from typing import Any

import msgspec

from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from .base import Branch, Search, Step
from .conclusion import conclude_all

DRAFT, POLICY = "draft", "policy"

Accepts = Callable[[float], bool]
"""Whether a drafted step of that score in [0, 1] stays."""

_CUT = frozenset({Stop.BUDGET, Stop.CONTEXT, Stop.CANCELLED})
_MARK = frozenset({Stop.MARK})
_ENDS = frozenset({Stop.MARK, Stop.THINK_END, Stop.ANSWER, Stop.EOS})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a chain of steps ends that does not end by itself.

    `step_tokens` bounds one step (the search's own limit holds too), `steps` counts those that stay;
    `patience`: so many steps in a row were empty, or the same as the one before.
    """

    steps: int
    step_tokens: int
    patience: int


async def speculate_steps(
    search: Search, accepts: Accepts, sampling: SamplingParams | None, limits: Limits, *, first_n: int = 0
) -> None:
    """Write one chain on the search's root and offer it: the first `first_n` steps by the policy, the others
    by the draft model where `accepts` takes their score, else by the policy. The policy writes the answer.

    Every drafted step is scored by `search.step_verifier`, as soon as it stands; what was rejected, and the
    scoring, stay charged. A note tells who wrote each step, and the scores.
    """
    chain = _Chain(search, accepts, sampling, limits)
    try:
        while not chain.branch.complete and len(chain.written) < limits.steps:
            step = await (chain.write() if len(chain.written) < first_n else chain.speculate())
            if step.stop in _CUT or step.stop is Stop.THINK_END or chain.stuck():
                break
        if not chain.branch.complete and not chain.branch.thinking:
            await chain.branch.extend(Until.ANSWER, sampling=sampling)
        await conclude_all(search, [chain.branch])
    finally:
        chain.note()


class _Chain:
    """The branch, and who wrote each of its steps."""

    def __init__(
        self, search: Search, accepts: Accepts, sampling: SamplingParams | None, limits: Limits
    ) -> None:
        self.branch: Branch = search.root
        self.written: list[str] = []
        self._drafts: list[dict[str, Any]] = []
        self._idle = 0
        self._last = ""
        self._search = search
        self._accepts = accepts
        self._sampling = sampling
        self._limits = limits

    async def speculate(self) -> Step:
        """The draft model's step where it is accepted, else the policy's in its place."""
        start = len(self.branch.tokens)
        step = await self._extend(DRAFT)
        if step.stop in _CUT:
            return step
        score = await self._score(step)
        if score is None and self._search.budget.spent:  # nobody can judge it or write another
            return step
        accepted = score is not None and self._accepts(score)
        self._drafts.append({"step": len(self.written), "score": score, "accepted": accepted})
        if accepted:
            return self._keep(step, DRAFT)
        self.branch.truncate(start)
        return await self.write()

    async def write(self) -> Step:
        """The policy's step."""
        return self._keep(await self._extend(POLICY), POLICY)

    def stuck(self) -> bool:
        """Whether the last steps brought nothing."""
        return self._idle >= self._limits.patience

    def note(self) -> None:
        accepted = sum(draft["accepted"] for draft in self._drafts)
        self._search.note(
            f"drafts: {accepted} accepted, {len(self._drafts) - accepted} rejected",
            written=self.written,
            drafts=self._drafts,
        )

    async def _extend(self, model: str) -> Step:
        return await self.branch.extend(
            Until.STEP, model=model, max_tokens=self._limits.step_tokens, sampling=self._sampling
        )

    async def _score(self, step: Step) -> float | None:
        """The score of the step itself, whatever the scorer makes of all steps together; None where it cannot
        tell, as for the end of thinking of a model whose steps have a mark."""
        ends = _ENDS if self.branch.profile.step_mark is None else _MARK
        if step.stop not in ends:
            return None
        score = await self.branch.evaluate(self._search.step_verifier)
        return score.steps[-1] if score.steps else score.value

    def _keep(self, step: Step, writer: str) -> Step:
        if step.stop in _CUT:
            return step
        self.written.append(writer)
        text = step.text.removesuffix(self.branch.profile.step_mark or "").strip()
        self._idle = self._idle + 1 if text in ("", self._last) else 0
        self._last = text
        return step
