"""A problem to solve, and the task that knows how to put it to a model. No gold answer lives here."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from ..engine.text.tokenizer import Message
from .base import Verifier


@runtime_checkable
class Task(Protocol):
    """A kind of problem, bound to one instance: what to send to the model, and how to read and check its
    answer.

    Tasks are found by the entry point group `branchwise.tasks`, whose values are classes with a class method
    `recognise(text) -> Task | None`: None where the text is not of this task, `UsageError` where it is but
    cannot be solved (a number outside the trained range).
    """

    @property
    def name(self) -> str: ...

    def prompt(self) -> str:
        """The user message for the model."""
        ...

    def extract(self, text: str) -> str | None:
        """The answer in the text of the answer phase, or None (an abstention)."""
        ...

    def canonical(self, answer: str) -> str | None:
        """The key under which equal answers vote together, or None where the answer is malformed."""
        ...

    def verifier(self) -> Verifier | None:
        """The task's own check that needs no gold answer, if it has one."""
        ...


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier attempt at a problem, as a later one may read it: the texts before and after the end of
    thinking, and the answer, None for an abstention."""

    thinking: str
    conclusion: str
    answer: str | None


@runtime_checkable
class Revisable(Protocol):
    """A task that says itself how earlier attempts are put to the model; others are put in words
    (`revision.revision_prompt`)."""

    def revise(self, attempts: Sequence[Attempt]) -> str:
        """The user message that goes on from earlier attempts, the latest last."""
        ...


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. `id` seeds its branches: two problems of one run with one text need two ids. `messages`
    are the turns of a conversation before `text`, behind `system`; `since` are those behind it: calls of
    tools and their results. `prompt` are token ids that the model goes on from as they are, whatever its chat
    template and its tasks would make of the text."""

    text: str
    id: str = ""
    system: str | None = None
    task: Task | None = None
    messages: tuple[Message, ...] = ()
    since: tuple[Message, ...] = ()
    prompt: tuple[int, ...] | None = None

    @property
    def with_turns(self) -> str:
        """The text behind its earlier turns, each with its role: the problem for a model that is asked about
        it in one message."""
        return "\n\n".join([*(f"{message.role}: {message.content}" for message in self.messages), self.text])
