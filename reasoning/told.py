"""What the watchers of a branch know of its text."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from ..engine.text.detokenize import Detokenizer
from ..engine.text.stop import StopRule
from .events import Cut, Wrote

if TYPE_CHECKING:
    from .branch import SearchBranch


class Told:
    """Tells of a branch's text as it grows (`Wrote`) and shrinks (`Cut`), where the run's watchers want that.

    A child begins with what was told of its parent.
    """

    def __init__(self, branch: "SearchBranch", before: str = "") -> None:
        self._branch = branch
        self._parts = [before]

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def phase(self) -> str:
        """What the branch is writing now."""
        return "thinking" if self._branch.thinking else "answer"

    def listener(self, rule: StopRule) -> Callable[[Sequence[int]], None] | None:
        """What the engine calls with the tokens of the extension that begins; None where nobody asked for
        them."""
        branch = self._branch
        if not branch.run.deltas:
            return None
        # Not behind the prompt: the branch's text is decoded without it, and with some tokenizers the text of
        # the first token depends on what stands before it.
        lasting = LastingText(Detokenizer(branch.tokenizer, branch.tokens), rule.strings)
        phase = self.phase

        def listen(tokens: Sequence[int]) -> None:
            if branch.live:
                self._write(lasting.push(tokens), phase)

        return listen

    def settle(self, phase: str) -> None:
        """The branch's tokens stand as they are: tell what differs from what was told."""
        if not self._branch.run.deltas:
            return
        told, text = self.text, self._branch.text
        if not text.startswith(told):
            told = text[: _common_length(told, text)]
            self._branch.run.emit(Cut, branch=self._branch.id, kept=len(told))
        self._parts = [told]
        self._write(text[len(told) :], phase)

    def _write(self, text: str, phase: str) -> None:
        if text:
            self._parts.append(text)
            self._branch.run.emit(Wrote, branch=self._branch.id, text=text, phase=phase)


class LastingText:
    """Text of sampled tokens, without what may turn out to be a stop string, which is not kept."""

    def __init__(self, detokenizer: Detokenizer, strings: Sequence[str]) -> None:
        self._detokenizer = detokenizer
        self._strings = strings
        self._held = ""

    def push(self, tokens: Sequence[int]) -> str:
        """What these tokens make certain."""
        text = self._held + "".join(map(self._detokenizer.push, tokens))
        length = self._certain(text)
        self._held = text[length:]
        return text[:length]

    def _certain(self, text: str) -> int:
        """Characters before the first stop string, or before an end that one could begin with."""
        found = [text.index(string) for string in self._strings if string in text]
        begun = [
            len(text) - size
            for string in self._strings
            for size in range(1, min(len(string), len(text) + 1))
            if text.endswith(string[:size])
        ]
        return min([*found, *begun, len(text)])


def _common_length(one: str, other: str) -> int:
    """Characters that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
