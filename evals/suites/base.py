"""The contract of a suite: samples with their gold answers, and grades."""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...verifiers.answer_type import AnswerType
from ...verifiers.extraction import extract_answer
from ...verifiers.problem import Problem
from .tasks import ProgramTask, TypedTask


class Gold(msgspec.Struct, frozen=True):
    """The right answer of a sample, as text of a declared type. For a rule that several answers satisfy
    (Countdown's expressions, a program's tests) `value` is the rule's own text."""

    type: AnswerType
    value: str


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a suite with its gold answer, which stays in `evals`: strategies get `problem_of`.

    `id` is unique in the suite and stable under seed and limit. `level` is the data's own difficulty.
    `meta` is for grading and grouping (a subject, an entry point); it does not reach a strategy either.
    """

    id: str
    problem: str
    gold: Gold
    level: str | None = None
    meta: dict[str, str] = {}


class Grade(msgspec.Struct, frozen=True):
    """Whether an answer is right; `correct` is None where the grader cannot tell, which is never a pass.
    `reason` is one line for a person."""

    correct: bool | None
    reason: str = ""


class Suite(Protocol):
    """A named set of samples that grades its own answers. Grading uses gold: `oracle` is always true."""

    @property
    def name(self) -> str: ...

    @property
    def oracle(self) -> bool: ...

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        """The samples, or `limit` of them drawn by `seed`; those of a smaller limit are among those of a
        larger one. Suites that generate their problems draw them by `seed`, a fixed number where `limit` is
        None.

        Raises `UsageError` where the data is missing or malformed.
        """
        ...

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        """Grade an answer as `read_answer` gives it; None is an abstention, and wrong. `text` is the whole
        completion, for suites that judge more than the answer. May block for seconds: call it off the event
        loop."""
        ...


def problem_of(sample: Sample) -> Problem:
    """What a strategy sees of a sample: its id, its text, and how answers of its type are read; never its
    gold. A program gets no system message that asks for a box."""
    match sample.gold.type:
        case AnswerType.CODE:
            task = ProgramTask(sample.problem, sample.meta.get("entry_point", ""))
            return Problem(id=sample.id, text=sample.problem, system="", task=task)
        case AnswerType.CHOICE | AnswerType.STRING:
            task = TypedTask(sample.problem, sample.gold.type)
            return Problem(id=sample.id, text=sample.problem, task=task)
    return Problem(id=sample.id, text=sample.problem)


def read_answer(sample: Sample, text: str) -> str | None:
    """The answer to a sample in the text of a conclusion, as a search reads it; None for an abstention."""
    task = problem_of(sample).task
    return extract_answer(text) if task is None else task.extract(text)


def drawn(samples: Sequence[Sample], limit: int | None, seed: int) -> Sequence[Sample]:
    """`limit` of the samples by `seed`, in their own order; a larger limit only adds to them."""
    if limit is None or limit >= len(samples):
        return samples

    def rank(index: int) -> bytes:
        return hashlib.blake2b(f"{seed}:{samples[index].id}".encode(), digest_size=8).digest()

    return [samples[index] for index in sorted(sorted(range(len(samples)), key=rank)[: max(limit, 0)])]
