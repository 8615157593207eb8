"""Thinking and answer: where one ends and the other begins on a branch."""

from collections.abc import Sequence

from ..engine.text.profile import ModelProfile
from ..engine.text.tokenizer import Tokenizer

_OPENING_TOKENS = 16
"""The end of a prompt that may open thinking, or close it at once: longer than any such text."""


class Phases:
    """The two phases of one branch. `thinks`: a thinking phase comes first, unless the model has none or the
    prompt ended it; `answer_start` is the offset of the answer phase in the branch's tokens, None while it
    thinks."""

    def __init__(
        self, tokenizer: Tokenizer, profile: ModelProfile, *, thinks: bool, prompt: Sequence[int]
    ) -> None:
        self._opening = tokenizer.decode(prompt[-_OPENING_TOKENS:]).rstrip()
        end = profile.think_end
        self.thinks = thinks and end is not None and not self._opening.endswith(end.rstrip())
        self.answer_start: int | None = None
        self._turns: list[tuple[int, int | None]] = []
        """Where later turns began, and the `answer_start` before each."""
        self._tokenizer = tokenizer
        self._profile = profile

    @property
    def answering(self) -> bool:
        """Past the end of thinking; models that do not think always are."""
        return self.answer_start is not None or not self.thinks

    def begun(self, tokens: Sequence[int]) -> bool:
        """Whether the marker that begins thinking stands at the end of the prompt or behind it."""
        start = (self._profile.think_start or "").rstrip()
        return self._opening.endswith(start) or start in self._tokenizer.decode(tokens)

    def thinking_length(self, tokens: Sequence[int]) -> int:
        """Tokens of thinking, without those that hold the marker behind it."""
        if not self.thinks:
            return 0
        if self.answer_start is None:
            return len(tokens)
        marker, decode = self._profile.think_end or "", self._tokenizer.decode
        length = self.answer_start
        while length and marker not in decode(tokens[length - 1 : self.answer_start]):
            length -= 1
        return max(0, length - 1)

    def thinking_text(self, tokens: Sequence[int]) -> str:
        """Text before the end of thinking, its marker apart; empty for models that do not think."""
        if not self.thinks:
            return ""
        text = self._tokenizer.decode(tokens[: self.answer_start])
        return text.removesuffix(self._profile.think_end or "")

    def conclusion_text(self, tokens: Sequence[int]) -> str:
        """Text after the end of thinking, end ids apart; all of it for models that do not think."""
        if not self.answering:
            return ""
        stop_ids = self._profile.stop_ids
        return self._tokenizer.decode([t for t in tokens[self.answer_start or 0 :] if t not in stop_ids])

    def read_forced(self, tokens: Sequence[int], forced: int) -> None:
        """The last `forced` tokens were appended: they may end thinking, as a model's own do."""
        if self.answering or self._profile.think_end is None:
            return
        if self._profile.think_end in self._tokenizer.decode(tokens[-forced:]):
            self.answer_start = len(tokens)

    def begin_turn(self, position: int, *, thinks: bool) -> None:
        """What was written is behind: a new answer begins at `position`, with thinking before it where it
        `thinks` and the model does."""
        self._turns.append((position, self.answer_start))
        self.answer_start = None if thinks and self.thinks else position

    def inherit(self, parent: "Phases") -> None:
        """Be as the parent is, whose tokens the branch has."""
        self.answer_start, self._turns = parent.answer_start, list(parent._turns)

    def cut(self, position: int) -> None:
        """The tokens from `position` on were dropped."""
        while self._turns and self._turns[-1][0] > position:
            _, self.answer_start = self._turns.pop()
        if self.answer_start is not None and self.answer_start > position:
            self.answer_start = None
