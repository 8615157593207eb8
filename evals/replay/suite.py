"""A recording as a suite: its problems, graded as they were recorded."""

from collections.abc import Sequence
from typing import Self

from ...verifiers.answer import equivalent
from ...verifiers.answer_type import AnswerType
from ..suites.base import Gold, Grade, Sample, drawn
from .readers import open_recording
from .recording import RecordedProblem, Recording


class RecordedSuite:
    """Implements `evals.suites.base.Suite` on a recording."""

    oracle = True

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.problems: dict[str, RecordedProblem] = {problem.id: problem for problem in recording.problems}

    @classmethod
    def open(cls, path: str, filter: str | None = None) -> Self:
        """As `open_recording`. Raises `UsageError` for what cannot be replayed."""
        return cls(open_recording(path, filter))

    @property
    def name(self) -> str:
        return self.recording.name

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        samples = [
            Sample(
                id=problem.id,
                problem=problem.problem,
                gold=Gold(AnswerType.STRING, problem.gold),
                level=problem.level,
            )
            for problem in self.recording.problems
        ]
        return drawn(samples, limit, seed)

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        """The recorded grade of that completion, else that of one with an equal answer."""
        completions = self.problems[sample.id].completions
        for completion in completions:
            if completion.text == text and text:
                return _grade(completion.correct)
        if answer is None:
            return Grade(False, "no answer")
        for completion in completions:
            if completion.answer is not None and equivalent(completion.answer, answer):
                return _grade(completion.correct)
        return Grade(None, "not recorded")


def _grade(correct: bool | None) -> Grade:
    return Grade(correct, "" if correct else "as recorded")
