"""The shipped policy through the whole house: one seed, one result, whatever the engine does beside it."""

import anyio
import pytest
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.strategies.best_of_n import BestOfN
from branchwise.verifiers.problem import Problem
from support.searching import outside_engine

COUNTDOWN = "Use 3, 7, 12 and 18 to make 45"
ARITHMETIC = "12 + 7*3 - 5*2 + 4"
STRATEGY = BestOfN(n=12, stop_on_verified=False)


def solve(problems, *, watched, **options):
    """The solution of `watched` out of `problems`, solved side by side."""

    async def main():
        found = {}
        async with Reasoner.open("reference", **options) as reasoner:

            async def one(index, text):
                problem = Problem(text=text, id=f"{index}:{text}")
                found[index] = await reasoner.solve(problem, STRATEGY, Budget(tokens=420), seed=3)

            async with anyio.create_task_group() as group:
                for index, text in enumerate(problems):
                    group.start_soon(one, index, text)
        return found[watched]

    return anyio.run(main)


@pytest.mark.parametrize("text", [COUNTDOWN, ARITHMETIC], ids=["countdown", "arithmetic"])
def test_same_result_alone_beside_others_and_for_any_chunk_and_step(text):
    alone = outside_engine(solve([text], watched=0))
    others = [f"Use {2 + i % 7}, {5 + i % 9} and {11 + i % 8} to make {20 + i}" for i in range(31)]
    assert outside_engine(solve([text, *others], watched=0)) == alone
    for max_step_tokens in (1, 5, 64):
        assert outside_engine(solve([text], watched=0, max_step_tokens=max_step_tokens)) == alone


def test_a_small_pool_changes_nothing():
    alone = outside_engine(solve([COUNTDOWN], watched=0))
    small = solve([COUNTDOWN], watched=0, kv_memory=2_000_000)
    assert outside_engine(small) == alone
    assert small.usage.engine["preemptions"] + small.usage.engine["parked"] > 0
