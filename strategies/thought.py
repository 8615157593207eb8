"""The thinking of one chain: how far it may go, where it ends, and the answer behind it."""

import enum

from ..engine.text.stop import Stop, Until
from .base import Branch, Search, Step

_ANSWER_SHARE = 8
_ANSWER_TOKENS = 256
"""Kept for the answer where no reserve of the budget is: an eighth of what is left, at most so many tokens
(as `Budget.answer_reserve` has it)."""


class Pause(enum.Enum):
    """Why thinking paused: the model ended it, as many tokens as were asked for stand, or a limit cut it."""

    ENDED = "ended"
    FULL = "full"
    CUT = "cut"


class Thought:
    """Thinks on one branch: in the thinking phase of a model that has one, else in its answer, which the end
    of the sequence ends.

    `most` caps the tokens of thinking, forced ones included, without the marker or token that ends it. Room
    for an answer is left in the context, and in the budget of a model without a thinking phase, for which the
    budget has no reserve.
    """

    def __init__(self, search: Search, branch: Branch, most: int | None) -> None:
        self.branch = branch
        self.in_phase = branch.thinking
        self._search = search
        self._most = most
        self._start = len(branch.tokens)
        self._kept_room = _answer_share(branch.room) + len((branch.profile.think_end or "").encode())
        budget = search.budget.tokens_left
        self._kept_tokens = 0 if self.in_phase or budget is None else _answer_share(budget)

    @property
    def length(self) -> int:
        """Tokens of thinking so far, forced ones included."""
        branch = self.branch
        if self.in_phase and not branch.thinking:
            return branch.thinking_length - self._start
        return len(branch.tokens) - self._start - branch.complete

    @property
    def left(self) -> int:
        """Tokens that thinking may still take; the reserve of the budget, which the engine keeps, is not
        looked at."""
        limits = [self.branch.room - self._kept_room]
        if self._most is not None:
            limits.append(self._most - self.length)
        budget = self._search.budget.tokens_left
        if budget is not None and not self.in_phase:
            limits.append(budget - self._kept_tokens)
        return max(0, min(limits))

    async def go_on(self, tokens: int | None = None) -> Pause:
        """Think until the model ends it, for `tokens` (None: without pause), or as long as the limits allow.

        A model with a step mark of its own pauses behind whole steps only.
        """
        limit = self.left if tokens is None else min(tokens, self.left)
        if limit == 0:
            return Pause.CUT
        step = await self.branch.extend(Until.THINK, max_tokens=limit)
        mark = self.branch.profile.step_mark
        if step.stop is Stop.LENGTH and mark is not None and not step.text.endswith(mark) and self.left:
            step = await self.branch.extend(Until.STEP, max_tokens=self.left)
        return self._pause(step)

    def takes(self, text: str) -> bool:
        """Whether a forced text and a token behind it surely fit: no tokenizer makes more tokens of a text
        than it has bytes."""
        budget = self._search.budget.tokens_left
        return len(text.encode()) < (self.left if budget is None else min(self.left, budget))

    async def reopen(self, text: str) -> bool:
        """Take the end of thinking back and force `text` in its place; whether the budget covered it."""
        branch = self.branch
        branch.truncate(len(branch.tokens) - 1 if branch.complete else branch.thinking_length)
        return (await branch.append(text)).stop is not Stop.BUDGET

    async def answer(self, final: str) -> None:
        """Bring the chain to its answer, from the reserve where the budget is spent. `final` asks for it in a
        chain that was cut and has no end of thinking to force."""
        branch = self.branch
        if not self.in_phase:
            await self._answer_in_words(final)
        elif not branch.thinking:
            await branch.extend(Until.ANSWER)
        else:
            if branch.complete:  # the sequence ended in the middle of thinking
                branch.truncate(len(branch.tokens) - 1)
            await branch.conclude()

    async def _answer_in_words(self, final: str) -> None:
        branch = self.branch
        if branch.complete or branch.room <= len(final.encode()):
            return
        await branch.append(final)
        await branch.extend(Until.ANSWER)

    def _pause(self, step: Step) -> Pause:
        if step.stop in (Stop.THINK_END, Stop.EOS):
            return Pause.ENDED
        return Pause.FULL if step.stop in (Stop.LENGTH, Stop.MARK) and self.left else Pause.CUT


def _answer_share(left: int) -> int:
    return min(_ANSWER_TOKENS, max(0, left) // _ANSWER_SHARE)
