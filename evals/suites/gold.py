"""The gold answer as a verifier: an oracle, for coverage (pass@k) and nothing that is ranked."""

import anyio

from ...verifiers.base import Candidate, Score
from .base import Sample, Suite


class GoldVerifier:
    """Grades candidates by the gold answer of one sample. An oracle: it is refused for selection unless that
    is asked for, and marked in every output."""

    name = "gold"
    sound = True
    oracle = True
    step_scores = False
    models: tuple[str, ...] = ()

    def __init__(self, suite: Suite, sample: Sample) -> None:
        self._suite = suite
        self._sample = sample

    async def score(self, candidate: Candidate) -> Score:
        """1 for a right answer, 0 for a wrong one; None without an answer, or where the grader cannot
        tell."""
        if candidate.answer is None:
            return Score(detail="no answer")
        grade = await anyio.to_thread.run_sync(
            self._suite.grade,
            self._sample,
            candidate.answer,
            candidate.conclusion,
            abandon_on_cancel=True,  # a search does not outlast its seconds by a grader's
        )
        if grade.correct is None:
            return Score(detail=grade.reason)
        return Score(value=float(grade.correct), verified=grade.correct, detail=grade.reason)
