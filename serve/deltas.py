"""The text of a stream as it becomes certain: what was sent is never taken back."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..engine.protocol import ModelInfo
from ..reasoning.events import Cut, Event, Wrote
from ..reasoning.solution import Solution
from ..reasoning.stepping import parse_step
from .reading import Ask
from .stops import StopCut, content_of

Phase = Literal["thinking", "answer"]


class Delta(msgspec.Struct, frozen=True):
    """A part of the thinking, or of the answer phase."""

    phase: Phase
    text: str


class OnlyPath(msgspec.Struct, frozen=True, kw_only=True):
    """The branch on which a strategy writes the one path that it can choose (`Strategy.only_path`).

    `step_mark`: thinking is certain up to the last of these, since an unfinished step may be dropped; None
    where none is. `answer_waits`: nothing of the answer is certain before the end, since a call may stand in
    it.
    """

    branch: str
    step_mark: str | None = None
    answer_waits: bool = False


def only_path(ask: Ask, info: ModelInfo, step: str | None = None) -> OnlyPath | None:
    """Where the search writes its only path, None where it chooses among several. `step` is the server's own
    way to divide steps."""
    path, mark, stepping = ask.strategy.only_path(), info.profile.step_mark, parse_step(step)
    if path is None or (mark is not None and stepping.tokens is not None):
        return None
    return OnlyPath(
        branch=".".join(map(str, (0, *path))),
        step_mark=None if mark is None else stepping.mark or mark,
        answer_waits=bool(ask.tools),
    )


class PathDeltas:
    """The deltas of one choice. Joined by phase, they are the thinking and the content of the answer.

    `path` None: nobody knows which path will be chosen until the end, and its text comes then.
    """

    def __init__(self, info: ModelInfo, stops: Sequence[str], path: OnlyPath | None) -> None:
        profile = info.profile
        ends = [info.tokenizer.decode([token]) for token in sorted(profile.stop_ids)]
        self._answer_ends = [end for end in ends if end]
        self._thinking_ends = [*self._answer_ends, *([profile.think_end] if profile.think_end else [])]
        self._path = path
        self._stops = stops
        self._content = StopCut(stops)
        self._text = ""
        self._parts: list[int] = []
        """Where each part of the text begins: no token stands in two of them."""
        self._answer_at: int | None = None
        self._answer_read = 0
        """Characters of the text that were looked at as a part of the content."""
        self._sent: dict[Phase, str] = {"thinking": "", "answer": ""}

    def push(self, event: Event) -> list[Delta]:
        """What an event of the search makes certain."""
        path = self._path
        if path is None or not isinstance(event, Wrote | Cut) or event.branch != path.branch:
            return []
        if isinstance(event, Cut):
            self._cut(event.kept)
            return []
        self._write(event)
        deltas = self._send("thinking", self._text[len(self._sent["thinking"]) : self._thought_until(path)])
        if self._answer_at is not None and not path.answer_waits:
            deltas += self._send("answer", self._content.push(self._new_answer(self._answer_at)))
        return deltas

    def end(self, solution: Solution) -> list[Delta]:
        """What is left to send once the search chose."""
        content, _ = content_of(solution, self._stops)
        return [*self._rest("thinking", solution.thinking), *self._rest("answer", content)]

    def _write(self, event: Wrote) -> None:
        if event.phase == "thinking":
            self._answer_at = None
        elif self._answer_at is None:
            self._answer_at = self._answer_read = len(self._text)
        self._parts.append(len(self._text))
        self._text += event.text

    def _cut(self, kept: int) -> None:
        self._text = self._text[:kept]
        self._parts = [start for start in self._parts if start < kept]
        if self._answer_at is not None and self._answer_at > kept:
            self._answer_at = None

    def _thought_until(self, path: OnlyPath) -> int:
        """Characters that are certain to be thinking."""
        until = len(self._text) if self._answer_at is None else self._answer_at
        certain = self._lasting(0, until, self._thinking_ends)
        if path.step_mark is None or self._answer_at is not None:
            return certain
        place = self._text.rfind(path.step_mark, 0, certain)
        return 0 if place < 0 else place + len(path.step_mark)

    def _new_answer(self, start: int) -> str:
        """What became certain of the answer phase, which begins at `start`."""
        begin = self._answer_read
        self._answer_read = max(begin, self._lasting(start, len(self._text), self._answer_ends))
        return self._text[begin : self._answer_read]

    def _lasting(self, start: int, until: int, ends: Sequence[str]) -> int:
        """Where the text between `start` and `until` ends that nobody takes back: whole parts of it before
        one of the `ends` that stands in its last part, or may be about to."""
        last = max((part for part in self._parts if part < until), default=start)
        places = [until]
        for end in ends:
            first = max(start, last - len(end) + 1)
            if (found := self._text.find(end, first, until)) >= 0:
                places.append(found)
            tails = range(max(start, until - len(end) + 1), until)
            places.extend(place for place in tails if end.startswith(self._text[place:until]))
        place = min(places)
        return (
            place if place == until else max((part for part in self._parts if part <= place), default=start)
        )

    def _rest(self, phase: Phase, whole: str) -> list[Delta]:
        sent = self._sent[phase]
        return self._send(phase, whole[len(sent) :]) if whole.startswith(sent) else []

    def _send(self, phase: Phase, text: str) -> list[Delta]:
        self._sent[phase] += text
        return [Delta(phase, text)] if text else []
