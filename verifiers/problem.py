"""A problem to solve, and the task that knows how to put it to a model. No gold answer lives here."""

from typing import Protocol, runtime_checkable

import msgspec

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


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. `id` seeds its branches: two problems of one run with one text need two ids."""

    text: str
    id: str = ""
    system: str | None = None
    task: Task | None = None
