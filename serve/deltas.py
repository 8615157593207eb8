"""The text of a stream as it becomes certain: what was sent is never taken back."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..engine.protocol import ModelInfo
from ..reasoning.events import Event, Wrote
from ..reasoning.solution import Solution
from .stops import StopCut, content_of

ROOT = "0"
"""The branch on which a strategy of one path writes."""


class Delta(msgspec.Struct, frozen=True):
    """A part of the thinking, or of the answer phase."""

    phase: Literal["thinking", "answer"]
    text: str


class PathDeltas:
    """The deltas of one choice. Joined by phase, they are the thinking and the content of the answer.

    `one_path`: the strategy writes on its root alone and takes nothing back but an unfinished step, so that
    each token belongs to the chosen path as soon as it stands. Of other strategies nobody knows which path
    will be chosen until the end: theirs comes then.
    """

    def __init__(self, info: ModelInfo, stops: Sequence[str], *, one_path: bool) -> None:
        profile = info.profile
        self._one_path = one_path
        self._stops = stops
        self._mark = profile.step_mark
        ends = tuple(info.tokenizer.decode([token]) for token in sorted(profile.stop_ids))
        self._thinking = StopCut([profile.think_end] if profile.think_end else [])
        self._answer = StopCut([end for end in ends if end])
        self._content = StopCut(stops)
        self._unfinished = ""
        self._sent = {"thinking": "", "answer": ""}

    def push(self, event: Event) -> list[Delta]:
        """What an event of the search makes certain."""
        if not self._one_path or not isinstance(event, Wrote) or event.branch != ROOT:
            return []
        if event.phase == "thinking":
            return self._send("thinking", self._finished(self._thinking.push(event.text)))
        return self._send("answer", self._content.push(self._answer.push(event.text)))

    def end(self, solution: Solution) -> list[Delta]:
        """What is left to send once the search chose."""
        content, _ = content_of(solution, self._stops)
        return [*self._rest("thinking", solution.thinking), *self._rest("answer", content)]

    def _finished(self, text: str) -> str:
        """Thinking up to the last whole step, for models whose unfinished steps may be dropped."""
        if self._mark is None:
            return text
        whole, mark, rest = (self._unfinished + text).rpartition(self._mark)
        self._unfinished = rest
        return whole + mark

    def _rest(self, phase: Literal["thinking", "answer"], whole: str) -> list[Delta]:
        sent = self._sent[phase]
        return self._send(phase, whole[len(sent) :]) if whole.startswith(sent) else []

    def _send(self, phase: Literal["thinking", "answer"], text: str) -> list[Delta]:
        self._sent[phase] += text
        return [Delta(phase, text)] if text else []
