"""When an extension ends."""

import enum
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

from ..checked import Checked
from .detokenize import Detokenizer
from .profile import ModelProfile
from .state import TextEvent, TextState
from .tokenizer import Tokenizer


class Stop(enum.StrEnum):
    """Why an extension ended. `FAILED` never reaches a strategy as a value: `extend` raises."""

    MARK = "mark"
    THINK_END = "think_end"
    ANSWER = "answer"
    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    BUDGET = "budget"
    CONTEXT = "context"
    CANCELLED = "cancelled"


class Until(enum.StrEnum):
    """How far to extend: one step, the end of thinking, a closed final answer, or the end of the sequence."""

    STEP = "step"
    THINK = "think"
    ANSWER = "answer"
    END = "end"


class StopRule(Checked, frozen=True, kw_only=True):
    """What ends an extension besides its length.

    `eos_ids` always end it (the id is kept). `strings` end it and are not kept. `until` names the text event
    that ends it (its mark is kept), found by the model's profile. `tokens_per_step` cuts steps by count
    instead (`step=tokens:N`); `mark` overrides the profile's step mark (`step=mark:...`). Raises
    `UsageError` in one line for a value out of range.
    """

    until: Until = Until.END
    eos_ids: frozenset[int] = frozenset()
    strings: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    mark: str | None = None
    tokens_per_step: Annotated[int, Meta(ge=1)] | None = None


class StopChecker:
    """Applies a `StopRule` to one extension, token by token; `context` are the tokens that stand before it.

    Where the rule can be decided on ids alone (no stop strings, markers that are single tokens) no text is
    made. Text state, such as an open code fence or the end of thinking, is taken from the context.
    """

    def __init__(
        self, rule: StopRule, profile: ModelProfile, tokenizer: Tokenizer, context: Sequence[int]
    ) -> None:
        self._rule = rule
        self._tokenizer = tokenizer
        self._pushed: list[int] = []
        self._kept: int | None = None
        self._tail: tuple[int, ...] = ()
        self._thinking = _Thinking(profile, tokenizer, context)
        stepping = rule.until is Until.STEP and rule.tokens_per_step is None
        mark = (rule.mark or profile.step_mark) if stepping else None
        self._mark_id = None if mark is None else mark_id(tokenizer, mark)
        self._mark_text = mark if self._mark_id is None else None
        self._blank_lines = stepping and mark is None
        self._boxes = rule.until is Until.ANSWER and profile.final_answer == "boxed"
        self._ends_with_thinking = rule.until in (Until.STEP, Until.THINK)
        needs_text = (
            self._mark_text or self._blank_lines or self._boxes or rule.strings or self._thinking.in_text
        )
        self._text = _GrowingText(tokenizer, context) if needs_text else None
        self._state: TextState | None = None
        if self._blank_lines or self._boxes:
            self._state = TextState()
            self._state.feed(tokenizer.decode(self._thinking.current_phase(context)))
            self._state.begin_step()

    def push(self, token: int) -> Stop | None:
        """Why the extension ends with `token`, None to go on."""
        self._pushed.append(token)
        if token in self._rule.eos_ids:
            return Stop.EOS
        fresh = "" if self._text is None else self._text.push(token)
        if self._text is not None and self._rule.strings and self._found_string(self._text):
            return Stop.STOP
        if self._thinking.ends_with(token, self._text):
            if self._state is not None:
                self._state = TextState()
            return Stop.THINK_END if self._ends_with_thinking else None
        if token == self._mark_id:
            return Stop.MARK
        if self._mark_text is not None and self._text is not None and self._text.has(self._mark_text):
            return Stop.MARK
        if self._state is not None and fresh:
            return self._by_events(self._state.feed(fresh))
        if self._rule.until is Until.STEP and self._rule.tokens_per_step is not None:
            return Stop.MARK if len(self._pushed) >= self._rule.tokens_per_step else None
        return None

    def kept(self) -> int:
        """How many of the pushed tokens stay. A stop string goes, with the token that holds its start."""
        return len(self._pushed) if self._kept is None else self._kept

    def tail(self) -> tuple[int, ...]:
        """Ids that stand behind the kept tokens: the text before a stop string that began inside a token."""
        return self._tail

    def _by_events(self, events: Sequence[TextEvent]) -> Stop | None:
        for event in events:
            if event is TextEvent.BLANK_LINE and self._blank_lines:
                return Stop.MARK
            if event is TextEvent.BOX_CLOSED and self._boxes and self._thinking.over:
                return Stop.ANSWER
        return None

    def _found_string(self, text: "_GrowingText") -> bool:
        starts = [start for string in self._rule.strings if (start := text.find(string)) >= 0]
        if not starts:
            return False
        self._kept, rest = text.split(min(starts))
        self._tail = tuple(self._tokenizer.encode(rest)) if rest else ()
        return True


class _Thinking:
    """Whether the thinking phase is over, by the marker's id where it is one token, by its text otherwise."""

    def __init__(self, profile: ModelProfile, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._end = profile.think_end
        self._end_id = None if self._end is None else tokenizer.token_id(self._end)
        self._begin_id = None if profile.think_start is None else tokenizer.token_id(profile.think_start)
        self._phase = 0
        self.over = self._end is None
        if self._end_id is not None:
            self._phase = _after_last(context, self._end_id)
            self.over = self._phase > 0 and self._phase >= _after_last(context, self._begin_id)
        elif self._end is not None:
            self.over = self._end in tokenizer.decode(context)
        self.in_text = self._end is not None and self._end_id is None and not self.over

    def current_phase(self, context: Sequence[int]) -> Sequence[int]:
        """The part of the context that belongs to the phase at its end."""
        return context[self._phase :] if self.over else context

    def ends_with(self, token: int, text: "_GrowingText | None") -> bool:
        """Whether thinking ends here; true once."""
        if self.over or self._end is None:
            return False
        if self._end_id is not None:
            self.over = token == self._end_id
        else:
            self.over = text is not None and text.has(self._end)
        return self.over


class _GrowingText:
    """The text of the pushed tokens, and which token each part came with."""

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._detokenizer = Detokenizer(tokenizer, context)
        self._text = ""
        self._ends: list[int] = []
        self._clean: list[bool] = []

    def push(self, token: int) -> str:
        fresh = self._detokenizer.push(token)
        self._text += fresh
        self._ends.append(len(self._text))
        self._clean.append(not self._detokenizer.open)
        return fresh

    def find(self, string: str) -> int:
        """Where `string` starts that the last token completed, -1 if it completed none."""
        before = self._ends[-2] if len(self._ends) > 1 else 0
        return self._text.find(string, max(0, before - len(string) + 1))

    def has(self, string: str) -> bool:
        """Whether the last token completed `string`."""
        return self.find(string) >= 0

    def split(self, start: int) -> tuple[int, str]:
        """Number of tokens that end before character `start` and in no open character, and the text between
        them and it."""
        count = len(self._ends)
        while count and not (self._ends[count - 1] <= start and self._clean[count - 1]):
            count -= 1
        return count, self._text[self._ends[count - 1] if count else 0 : start]


_SMALL_VOCABULARY = 1024


@lru_cache(maxsize=64)
def mark_id(tokenizer: Tokenizer, mark: str) -> int | None:
    """The id of `mark` where only that token can bring it about: the mark is one character and one token
    holds it.

    Looked for in small vocabularies only (character-level ones); larger ones have tokens such as `);`.
    """
    if len(mark) != 1 or tokenizer.vocab_size > _SMALL_VOCABULARY:
        return None
    holders = [token for token in range(tokenizer.vocab_size) if mark in tokenizer.decode([token])]
    return holders[0] if len(holders) == 1 else None


def _after_last(tokens: Sequence[int], token: int | None) -> int:
    """Index behind the last `token`, 0 if there is none."""
    for index in range(len(tokens) - 1, -1, -1):
        if tokens[index] == token:
            return index + 1
    return 0
