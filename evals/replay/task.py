"""A recorded problem as the orchestrator sees it: answers and scores as they were recorded."""

from ...verifiers.answer import canonical, extract_answer
from ...verifiers.base import Candidate, Score, Verifier
from .recording import Completion, RecordedProblem


class RecordedTask:
    """Implements `verifiers.problem.Task`: the answer of a completion is the recorded one."""

    name = "recorded"

    def __init__(self, problem: RecordedProblem) -> None:
        self._problem = problem
        self.by_text: dict[str, Completion] = {c.text: c for c in reversed(problem.completions)}

    def prompt(self) -> str:
        return self._problem.problem

    def extract(self, text: str) -> str | None:
        found = self.by_text.get(text)
        return extract_answer(text) if found is None else found.answer

    def canonical(self, answer: str) -> str | None:
        return canonical(answer)

    def verifier(self) -> Verifier | None:
        return RecordedVerifier(self) if any(c.score is not None for c in self.by_text.values()) else None


class RecordedVerifier:
    """Gives a completion its recorded score; None for text that was not recorded. Proves nothing."""

    name = "recorded"
    sound = False
    oracle = False
    step_scores = False
    models: tuple[str, ...] = ()

    def __init__(self, task: RecordedTask) -> None:
        self._task = task

    async def score(self, candidate: Candidate) -> Score:
        found = self._task.by_text.get(candidate.conclusion)
        return Score(value=None if found is None else found.score)
