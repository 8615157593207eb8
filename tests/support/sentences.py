"""Sentences of the reference tasks with their answers, and what a search of ours makes of them."""

import random
from collections.abc import Sequence
from typing import Any

import anyio
from branchwise import Budget, Reasoner
from branchwise.evals.reference.tasks import arithmetic
from branchwise.evals.reference.tasks.trace import Split
from branchwise.reasoning.solution import Solution


def held_out_sums(count: int, seed: int) -> dict[str, str]:
    """So many arithmetic sentences that no model was trained on, with their values."""
    rng = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        instance = arithmetic.generate(rng, Split.HELD_OUT)
        found[arithmetic.sentence(instance)] = str(arithmetic.true_value(instance))
    return found


def solved(texts: Sequence[str], strategy: str, budget: Budget, **options: Any) -> list[Solution]:
    """The reference model's solutions, searched in this process; `options` as in `Reasoner.solve`."""

    async def go() -> list[Solution | Exception]:
        async with Reasoner.open("reference", threads=1) as reasoner:
            return await reasoner.solve_many(texts, strategy, budget, **options)

    found = anyio.run(go)
    assert all(isinstance(solution, Solution) for solution in found), found
    return [solution for solution in found if isinstance(solution, Solution)]
