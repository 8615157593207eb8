"""Solving tasks on a recording: the real orchestrator, on a back end that writes what was recorded."""

import anyio

from ...engine.errors import UsageError
from ...reasoning.reasoner import Reasoner
from ...verifiers.problem import Problem
from ..runs.plan import Task
from ..runs.record import Spent
from ..runs.solver import Solved
from .backend import RecordedEngine
from .recording import RecordedProblem, Recording
from .task import RecordedTask


class ReplaySolver:
    """Implements `Solver`: each task gets a back end of its own, with its problem's completions."""

    engines = 1

    def __init__(self, recording: Recording, *, oracle: bool) -> None:
        self._recording = recording
        self._oracle = oracle
        self._problems: dict[str, RecordedProblem] = {problem.id: problem for problem in recording.problems}

    async def solve(self, task: Task) -> Solved:
        """Raises `UsageError` for a limit on what the recording does not tell, and for another temperature
        than it has."""
        self._check_budget(task)
        problem = self._problems[task.sample.id]
        ended = anyio.Event()
        engine = RecordedEngine(
            problem,
            name=self._recording.name,
            temperature=self._recording.temperature,
            on_exhausted=ended.set,
        )
        async with Reasoner.over(engine) as reasoner:
            solution = await reasoner.solve(
                Problem(id=problem.id, text=problem.problem, task=RecordedTask(problem)),
                task.cell.parsed,
                task.cell.limits,
                seed=task.seed,
                oracle=self._oracle,
                interrupt=ended,
            )
        if engine.refusal is not None:  # raised in a branch, it only ended that branch
            raise engine.refusal
        known = self._recording.tokens_known
        spent = Spent(
            tokens=solution.usage.tokens if known else None,
            discarded_tokens=solution.usage.discarded_tokens if known else None,
        )
        return Solved(solution=solution, spent=spent, beyond=engine.exhausted)

    def _check_budget(self, task: Task) -> None:
        limits = task.cell.limits
        for name in ("flops", "seconds", "kv_tokens"):
            if (value := getattr(limits, name)) is not None:
                raise UsageError(f"budget {name}={value}: a recording does not tell {name}; give tokens")
        if limits.tokens is not None and not self._recording.tokens_known:
            raise UsageError(
                f"budget tokens={limits.tokens}: recording {self._recording.name} does not tell the tokens "
                "of its samples; leave --budget out, and limit n"
            )
