"""Where a text stands: inside a code fence, inside display maths, inside a final-answer box."""

import enum
import re


class TextEvent(enum.Enum):
    """What a piece of text completed."""

    BLANK_LINE = enum.auto()
    BOX_CLOSED = enum.auto()


class _Inside(enum.Enum):
    PROSE = enum.auto()
    FENCE = enum.auto()
    DOLLARS = enum.auto()
    BRACKETS = enum.auto()


_TOKENS = re.compile(r"```|\$\$|\\boxed\s*\{|\\[\[\]{}\\]|[{}]|\n[ \t\r]*\n")
_LONGEST = 24
"""Characters that a construct cut in two by a token boundary may already have: `\\boxed` and some space."""


class TextState:
    """Follows a text as it grows. Escaped braces do not count; in a fence only its end does."""

    def __init__(self) -> None:
        self._carry = ""
        self._inside = _Inside.PROSE
        self._box_depth = 0
        self._has_words = False

    def begin_step(self) -> None:
        """Forget that the step has words: a blank line ends a step only behind some."""
        self._has_words = False

    def feed(self, text: str) -> list[TextEvent]:
        """The events that `text` completes, in order; display maths and code fences hide blank lines."""
        buffer = self._carry + text
        events: list[TextEvent] = []
        done = 0
        words_from = len(self._carry)
        for match in _TOKENS.finditer(buffer):
            if not self._has_words and buffer[words_from : match.start()].strip():
                self._has_words = True
            event = self._step(match.group())
            if event is not None:
                events.append(event)
            done = match.end()
        if not self._has_words and buffer[words_from:].strip():
            self._has_words = True
        self._carry = buffer[max(done, len(buffer) - _LONGEST) :]
        return events

    def _step(self, found: str) -> TextEvent | None:
        if self._inside is _Inside.FENCE:
            if found == "```":
                self._inside = _Inside.PROSE
            return None
        if found[0] == "\n":
            plain = self._inside is _Inside.PROSE and self._has_words
            return TextEvent.BLANK_LINE if plain else None
        if found.startswith("\\boxed"):
            self._box_depth += 1
        elif found == "{":
            self._box_depth += self._box_depth > 0
        elif found == "}" and self._box_depth:
            self._box_depth -= 1
            return TextEvent.BOX_CLOSED if self._box_depth == 0 else None
        else:
            self._toggle(found)
        return None

    def _toggle(self, found: str) -> None:
        if self._inside is _Inside.PROSE:
            opened = {"```": _Inside.FENCE, "$$": _Inside.DOLLARS, "\\[": _Inside.BRACKETS}.get(found)
            self._inside = opened or self._inside
        elif (self._inside, found) in ((_Inside.DOLLARS, "$$"), (_Inside.BRACKETS, "\\]")):
            self._inside = _Inside.PROSE
