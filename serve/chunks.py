"""The chunks of a streamed answer, in the shapes of both endpoints."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import msgspec

from ..reasoning.events import Event
from ..reasoning.solution import Solution
from .answer import Reply, calls_of, finish_of, report_of, usage_of
from .deltas import Delta
from .stops import content_of
from .telling import completion_logprobs, token_logprobs


class _End(NamedTuple):
    """Finish reason, report, the characters of the content, and whether a stop string cut it."""

    finish: str
    report: dict[str, Any]
    length: int
    cut: bool


class Chunks(ABC):
    """Makes the chunks of one answer. Log-probabilities come with the last chunk of their choice: before it
    is known which path was chosen there are none."""

    object = ""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    @abstractmethod
    def first(self, index: int) -> dict[str, Any] | None:
        """What opens a choice; None where nothing does."""
        ...

    @abstractmethod
    def delta(self, index: int, delta: Delta) -> dict[str, Any]:
        """A part of a choice's text."""
        ...

    @abstractmethod
    def last(self, index: int, solution: Solution) -> dict[str, Any]:
        """The end of a choice: why, and how its search ended."""
        ...

    def event(self, index: int, event: Event) -> dict[str, Any]:
        """An event of the search of choice `index`; a chunk without choices, which clients skip."""
        return {
            **self._base(),
            "choices": [],
            "search_event": {"choice": index, **msgspec.to_builtins(event)},
        }

    def usage(self, solutions: list[Solution]) -> dict[str, Any]:
        """The usage of all choices; a chunk without choices."""
        return {
            **self._base(),
            "choices": [],
            "usage": msgspec.to_builtins(usage_of(solutions, self._reply.call.choices)),
        }

    def _base(self) -> dict[str, Any]:
        reply = self._reply
        return {
            "id": reply.id,
            "object": self.object,
            "created": reply.created,
            "model": reply.call.model,
            "system_fingerprint": reply.fingerprint,
        }

    def _end(self, solution: Solution) -> "_End":
        content, cut = content_of(solution, self._reply.call.stops)
        report = msgspec.to_builtins(report_of(solution))
        return _End(finish_of(solution, cut=cut), report, len(content), cut)


class ChatChunks(Chunks):
    """`chat.completion.chunk`."""

    object = "chat.completion.chunk"

    def first(self, index: int) -> dict[str, Any] | None:
        return self._choice(index, {"role": "assistant", "content": ""})

    def delta(self, index: int, delta: Delta) -> dict[str, Any]:
        name = "reasoning_content" if delta.phase == "thinking" else "content"
        return self._choice(index, {name: delta.text})

    def last(self, index: int, solution: Solution) -> dict[str, Any]:
        end = self._end(solution)
        told = None
        if self._reply.call.logprobs is not None:
            told = {
                "content": msgspec.to_builtins(token_logprobs(solution.written, self._reply.info, end.length))
            }
        calls = [
            {"index": place, **call}
            for place, call in enumerate(msgspec.to_builtins(calls_of(solution, cut=end.cut)))
        ]
        delta = {"tool_calls": calls} if calls else {}
        return self._choice(index, delta, finish_reason=end.finish, logprobs=told, search=end.report)

    def _choice(self, index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "finish_reason": None, "logprobs": None, **more}
        return {**self._base(), "choices": [choice]}


class TextChunks(Chunks):
    """`text_completion`. Thinking comes as `reasoning_content` of a choice with an empty text."""

    object = "text_completion"

    def first(self, index: int) -> dict[str, Any] | None:
        echo = self._reply.call.asks[index].echo
        return self._choice(index, echo) if echo else None

    def delta(self, index: int, delta: Delta) -> dict[str, Any]:
        if delta.phase == "thinking":
            return self._choice(index, "", reasoning_content=delta.text)
        return self._choice(index, delta.text)

    def last(self, index: int, solution: Solution) -> dict[str, Any]:
        end = self._end(solution)
        told = None
        if self._reply.call.logprobs is not None:
            told = msgspec.to_builtins(completion_logprobs(solution, self._reply.info, end.length))
        return self._choice(index, "", finish_reason=end.finish, logprobs=told, search=end.report)

    def _choice(self, index: int, text: str, **more: Any) -> dict[str, Any]:
        choice = {"index": index, "text": text, "finish_reason": None, "logprobs": None, **more}
        return {**self._base(), "choices": [choice]}
