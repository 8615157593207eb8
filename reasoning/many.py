"""Many problems side by side on one engine."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest

import anyio

from ..engine.errors import UsageError
from ..verifiers.problem import Problem
from .solution import Solution

SolveOne = Callable[[str | Problem, str | None], Awaitable[Solution]]
"""(problem, its tenant) -> its solution."""


async def solve_all(
    problems: Sequence[str | Problem], solve: SolveOne, tenants: Sequence[str | None], at_once: int | None
) -> list[Solution | Exception]:
    """Solutions in the order of the problems, an error in the place of its problem.

    At most `at_once` are searched at a time (None: all), those of different tenants in turn.
    Raises `UsageError` where problems and tenants are not as many.
    """
    if len(tenants) != len(problems):
        raise UsageError(f"{len(problems)} problems and {len(tenants)} tenants: name one for each problem")
    if at_once is not None and at_once < 1:
        raise UsageError(f"at_once={at_once}: give 1 or more")
    results: dict[int, Solution | Exception] = {}
    free = anyio.Semaphore(max(1, len(problems)) if at_once is None else at_once)

    async def one(index: int) -> None:
        try:
            results[index] = await solve(problems[index], tenants[index])
        except Exception as error:
            results[index] = error
        free.release()

    async with anyio.create_task_group() as group:
        for index in in_turn(tenants):
            await free.acquire()  # here and not in the task: tasks start in any order
            group.start_soon(one, index)
    return [results[index] for index in range(len(problems))]


def in_turn(tenants: Sequence[str | None]) -> list[int]:
    """The places of `tenants`, one of each tenant after the other, of one tenant in the given order."""
    places: dict[str | None, list[int]] = {}
    for place, tenant in enumerate(tenants):
        places.setdefault(tenant, []).append(place)
    rounds = chain.from_iterable(zip_longest(*places.values()))
    return [place for place in rounds if place is not None]
