"""One seed, one result: whatever the pace of the branches, the back end's timing or the event loop."""

import anyio
import pytest
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.verifiers.problem import Problem
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.searching import DigitVerifier, Samples, outside_engine, scripted, search, solve


@settings(max_examples=30)
@given(
    salt=st.integers(0, 10_000),
    spread=st.integers(1, 9),
    tokens=st.integers(30, 500),
    seed=st.integers(0, 50),
    kv_tokens=st.none() | st.integers(40, 150),
)
@example(salt=0, spread=1, tokens=238, seed=0, kv_tokens=None)  # refused in the order of asking
@example(salt=0, spread=2, tokens=144, seed=4, kv_tokens=50)  # an end seen early changed who gave way
def test_same_seed_same_result_at_any_pace(salt, spread, tokens, seed, kv_tokens):
    budget = Budget(tokens=tokens, kv_tokens=kv_tokens)

    def once(pace):
        return solve(scripted(pace=pace), Samples(n=12), budget, seed=seed, verifier=DigitVerifier("3"))

    even = once(lambda seed, position: 0)
    odd = once(lambda seed, position: (seed ^ salt ^ position * 40503) % spread)
    assert outside_engine(even) == outside_engine(odd)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_same_result_on_both_event_loops(backend):
    solution = anyio.run(search, scripted(), Samples(n=12), Budget(tokens=300), backend=backend)
    again = anyio.run(search, scripted(), Samples(n=12), Budget(tokens=300), backend="asyncio")
    assert outside_engine(solution) == outside_engine(again)


def test_same_result_alone_and_beside_others():
    async def crowd():
        engine = scripted(pace=lambda seed, position: (seed + position) % 3)
        results = {}
        async with Reasoner.over(engine) as reasoner, anyio.create_task_group() as group:

            async def one(index):
                problem = Problem(text="task", id=str(index))
                results[index] = await reasoner.solve(problem, Samples(n=5), Budget(tokens=200), seed=1)

            for index in range(12):
                group.start_soon(one, index)
        return results

    async def alone(index):
        async with Reasoner.over(scripted()) as reasoner:
            return await reasoner.solve(
                Problem(text="task", id=str(index)), Samples(n=5), Budget(tokens=200), seed=1
            )

    together = anyio.run(crowd)
    for index in (0, 7, 11):
        assert outside_engine(anyio.run(alone, index)) == outside_engine(together[index])


def test_seeds_differ_between_branches_problems_and_runs():
    from branchwise.reasoning.run import branch_seed

    seeds = {
        branch_seed(run, problem, (0, i))
        for run in range(3)
        for problem in ("a", "b", "ab")
        for i in range(50)
    }
    assert len(seeds) == 3 * 3 * 50
