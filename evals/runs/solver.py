"""What solves the tasks of a run: a model, or what was recorded of one."""

from typing import Any, Protocol

import msgspec

from ...engine.errors import CapacityError, EngineClosed, UsageError
from ...reasoning.reasoner import Reasoner
from ...reasoning.solution import Solution
from ..suites.base import problem_of
from .plan import Task
from .recipe import Recipe
from .record import Spent


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """A solution and what it cost. `spent` None: as the solution's usage says. `beyond`: the search asked
    for more than was recorded."""

    solution: Solution
    spent: Spent | None = None
    beyond: bool = False


class Solver(Protocol):
    """Solves one task; tasks may be solved side by side."""

    @property
    def engines(self) -> int:
        """How many engines share the tasks."""
        ...

    async def solve(self, task: Task) -> Solved:
        """Raises `UsageError` for what no task of the run can do, `EngineClosed` where nothing can be solved
        any more; any other error concerns this task alone."""
        ...


class ModelSolver:
    """Solves on the models of an open reasoner, all tasks through its one engine."""

    engines = 1

    def __init__(self, reasoner: Reasoner, recipe: Recipe) -> None:
        self._reasoner = reasoner
        self._options: dict[str, Any] = {
            "verifier": recipe.verifier,
            "oracle": recipe.oracle,
            "system": recipe.system,
            "think": recipe.think,
            "temperature": recipe.temperature,
            "max_tokens": recipe.max_tokens,
            "step": recipe.step,
            "speculate": recipe.speculate,
        }

    async def solve(self, task: Task) -> Solved:
        solution = await self._reasoner.solve(
            problem_of(task.sample), task.cell.parsed, task.cell.limits, seed=task.seed, **self._options
        )
        return Solved(solution=solution)


def concerns_all(error: Exception) -> bool:
    """Whether an error means that the run cannot go on, and not just one of its tasks."""
    if isinstance(error, EngineClosed):
        return True
    return isinstance(error, UsageError) and not isinstance(error, CapacityError)
