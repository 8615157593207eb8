"""A budget that several searches draw from is as hard as their own, whoever asks when and on whatever
thread."""

from typing import Any

import anyio
import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.ledger import Ledger
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.shared import SharedBudget
from branchwise.reasoning.solution import Reason, Solution
from branchwise.verifiers.problem import Problem
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_engine import OracleEngine
from support.searching import Samples, scripted, uneven
from support.turns import turn_info


async def solve_side_by_side(
    reasoner: Reasoner, budgets: list[Budget], *, n: int = 4, seed: int = 0
) -> list[Solution]:
    found: dict[int, Solution] = {}

    async def one(index: int) -> None:
        problem = Problem(text="task", id=str(index))
        found[index] = await reasoner.solve(problem, Samples(n=n), budgets[index], seed=seed)

    async with anyio.create_task_group() as group:
        for index in range(len(budgets)):
            group.start_soon(one, index)
    return [found[index] for index in range(len(budgets))]


def forced(solution: Solution) -> int:
    return sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")


@settings(max_examples=20)
@given(
    tokens=st.integers(1, 700),
    own=st.lists(st.none() | st.integers(1, 400), min_size=1, max_size=6),
    reserve=st.none() | st.just(0),
    seed=st.integers(0, 1000),
    reproducible=st.booleans(),
)
def test_children_side_by_side_never_pass_their_parent_and_use_it_up_where_work_is_left(
    tokens: int, own: list[int | None], reserve: int | None, seed: int, reproducible: bool
) -> None:
    async def main() -> None:
        engine, shared = scripted(pace=uneven), SharedBudget(tokens=tokens)
        budgets = [Budget(tokens=limit, parent=shared, answer_reserve=reserve) for limit in own]
        async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
            solutions = await solve_side_by_side(reasoner, budgets, seed=seed)
        spent = [solution.usage.tokens for solution in solutions]
        assert sum(spent) == shared.tokens_spent <= tokens
        assert sum(spent) == engine.tokens_sampled + sum(map(forced, solutions))
        assert all(limit is None or used <= limit for used, limit in zip(spent, own, strict=True))
        assert shared.tokens_left == tokens - sum(spent), "something is still set aside"
        for solution in solutions:
            assert solution.graph.tokens_spent == solution.usage.tokens
            unfinished = sum(candidate.complete for candidate in solution.candidates) < 4
            assert (solution.reason is Reason.BUDGET) == unfinished
        if (
            reserve == 0
            and all(limit is None for limit in own)
            and Reason.BUDGET in [solution.reason for solution in solutions]
        ):
            assert shared.tokens_left == 0
        assert engine.live_sequences == 0

    anyio.run(main)


@settings(max_examples=20)
@given(flops=st.integers(1, 400_000), count=st.integers(1, 4), reproducible=st.booleans())
def test_flops_of_a_parent_are_never_passed(flops: int, count: int, reproducible: bool) -> None:
    async def main() -> None:
        shared = SharedBudget(flops=flops)
        async with Reasoner.over(scripted(pace=uneven), reproducible=reproducible) as reasoner:
            solutions = await solve_side_by_side(reasoner, [Budget(parent=shared)] * count)
        assert sum(solution.usage.flops for solution in solutions) == shared.flops_spent <= flops

    anyio.run(main)


Limits = st.none() | st.integers(1, 500)


@settings(max_examples=25)
@given(
    top=Limits,
    teams=st.lists(st.tuples(Limits, st.lists(Limits, min_size=1, max_size=3)), min_size=1, max_size=3),
    reserve=st.none() | st.integers(0, 40),
    turns=st.none() | st.integers(0, 150),
    reproducible=st.booleans(),
)
def test_no_level_of_nested_budgets_is_ever_passed(
    top: int | None,
    teams: list[tuple[int | None, list[int | None]]],
    reserve: int | None,
    turns: int | None,
    reproducible: bool,
) -> None:
    """Side by side, and cancelled after some turns of the event loop where `turns` is given."""
    engine, whole = scripted(pace=uneven), SharedBudget(tokens=top, flops=500_000)
    shared = [SharedBudget(tokens=limit, parent=whole) for limit, _ in teams]
    budgets = [
        Budget(
            tokens=own, parent=parent, answer_reserve=reserve if own is None or (reserve or 0) < own else 0
        )
        for parent, (_, owns) in zip(shared, teams, strict=True)
        for own in owns
    ]
    solutions: list[Solution] = []

    async def solve() -> None:
        async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
            solutions.extend(await solve_side_by_side(reasoner, budgets))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(solve)
            for _ in range(turns or 0):
                await anyio.lowlevel.checkpoint()
                for level in (whole, *shared):
                    assert level.tokens is None or level.tokens_spent <= level.tokens
            if turns is not None:
                group.cancel_scope.cancel()

    anyio.run(main)
    assert whole.tokens_spent == sum(team.tokens_spent for team in shared)
    assert whole.flops_spent == sum(team.flops_spent for team in shared) <= 500_000
    for level in (whole, *shared):
        if level.tokens is not None:
            assert level.tokens_spent <= level.tokens
            mine = level.tokens - level.tokens_spent
            above = None if level.parent is None else level.parent.tokens_left
            assert level.tokens_left == (mine if above is None else min(mine, above)), "still set aside"
    if turns is None:
        assert whole.tokens_spent == sum(solution.usage.tokens for solution in solutions)
        assert whole.tokens_spent == engine.tokens_sampled + sum(map(forced, solutions))
    assert engine.live_sequences == 0


def test_what_a_grandchild_keeps_is_set_aside_at_every_level() -> None:
    whole = SharedBudget(tokens=100)
    team, other = SharedBudget(tokens=50, parent=whole), SharedBudget(parent=whole)
    ledger = Ledger(Budget(parent=team, answer_reserve=40), thinks=True)
    late = Ledger(Budget(parent=other, answer_reserve=70), thinks=True)
    assert (whole.tokens_left, team.tokens_left, other.tokens_left) == (0, 0, 0)
    assert (ledger.tokens_left(answering=True), late.tokens_left(answering=True)) == (40, 60)
    assert not late.charge(61, 0, (), answering=True)
    assert (whole.tokens_spent, other.tokens_spent) == (0, 0), "refused above: nothing is booked below"
    ledger.close()
    late.close()
    assert (whole.tokens_left, team.tokens_left, other.tokens_left) == (100, 50, 100)


def test_the_seconds_of_a_grandparent_end_a_search() -> None:
    now = [0.0]
    whole = SharedBudget(seconds=5.0, now=lambda: now[0])
    ledger = Ledger(Budget(parent=SharedBudget(seconds=60.0, parent=whole)), thinks=False)
    now[0] = 5.0
    assert ledger.seconds_left == 0.0
    assert not ledger.charge(1, 1, (), answering=True)


@pytest.mark.anyio
async def test_children_on_engines_of_two_threads_never_pass_their_parent() -> None:
    rigs = [OracleEngine(num_blocks=400, infos=(turn_info(),)) for _ in range(2)]
    shared = SharedBudget(tokens=900)
    teams = [SharedBudget(parent=shared) for _ in rigs]
    found: list[Solution] = []

    async def one(rig: OracleEngine, team: SharedBudget) -> None:
        async with rig.engine as engine, Reasoner.over(engine, reproducible=False) as reasoner:
            budgets = [Budget(parent=team)] * 3
            found.extend(await solve_side_by_side(reasoner, budgets, n=8))

    async with anyio.create_task_group() as group:
        for rig, team in zip(rigs, teams, strict=True):
            group.start_soon(one, rig, team)
    spent = sum(solution.usage.tokens for solution in found)
    assert spent == shared.tokens_spent == sum(sum(rig.runner.samples.values()) for rig in rigs)
    assert spent == sum(team.tokens_spent for team in teams) == 900, "work was left"


def test_what_a_child_keeps_for_its_answer_its_siblings_cannot_take() -> None:
    shared = SharedBudget(tokens=100)
    first = Ledger(Budget(parent=shared, answer_reserve=20), thinks=True)
    second = Ledger(Budget(parent=shared, answer_reserve=30), thinks=True)
    assert first.tokens_left(answering=False) == second.tokens_left(answering=False) == 50
    assert second.charge(50, 0, (), answering=False)
    assert not second.charge(1, 0, (), answering=False)
    assert second.charge(10, 0, (), answering=True)
    assert first.tokens_left(answering=False) == 0
    assert first.tokens_left(answering=True) == 20
    second.close()
    assert first.tokens_left(answering=False) == 20, "what the other did not need"
    assert first.charge(40, 0, (), answering=True)
    assert shared.tokens_left == 0
    assert shared.tokens_spent == 100
    first.refund(3, 0, ())
    first.close()
    assert shared.tokens_left == 3


def test_a_late_child_keeps_what_is_there() -> None:
    shared = SharedBudget(tokens=10)
    first = Ledger(Budget(parent=shared, answer_reserve=8), thinks=True)
    late = Ledger(Budget(parent=shared, answer_reserve=8), thinks=True)
    assert (first.tokens_left(answering=True), late.tokens_left(answering=True)) == (8, 2)
    assert late.tokens_left(answering=False) == 0


def test_a_refusal_by_the_parent_ends_a_search_with_reason_budget_though_a_sibling_gives_back_later() -> None:
    async def main() -> None:
        shared = SharedBudget(tokens=60)
        kept = Ledger(Budget(parent=shared, answer_reserve=50), thinks=True)
        async with Reasoner.over(scripted()) as reasoner:
            solution = await reasoner.solve("task", Samples(n=4), Budget(parent=shared), seed=0)
        assert solution.reason is Reason.BUDGET
        assert solution.usage.tokens == 10
        kept.close()
        assert shared.tokens_left == 50

    anyio.run(main)


def test_the_seconds_of_a_parent_run_from_its_making_for_all() -> None:
    now = [100.0]
    shared = SharedBudget(seconds=5.0, now=lambda: now[0])
    now[0] = 103.0
    ledger = Ledger(Budget(seconds=60.0, parent=shared), thinks=False)
    assert ledger.seconds_left == 2.0
    assert ledger.charge(1, 1, (), answering=True)
    now[0] = 105.0
    assert ledger.seconds_left == 0.0
    assert not ledger.charge(1, 1, (), answering=True)
    assert ledger.spent


@pytest.mark.parametrize("reproducible", [True, False])
def test_a_search_that_is_cancelled_gives_back_what_it_kept(reproducible: bool) -> None:
    async def run_until(turns: int) -> None:
        engine, shared = scripted(pace=uneven), SharedBudget(tokens=400)

        async def run() -> None:
            async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
                await reasoner.solve("task", Samples(n=4), Budget(parent=shared), seed=0)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert shared.tokens_left == 400 - engine.tokens_sampled
        assert engine.live_sequences == 0

    for turns in range(0, 120, 3):
        anyio.run(run_until, turns)


@pytest.mark.parametrize("fields", [{"tokens": 0}, {"flops": -1}, {"seconds": 0.0}])
def test_a_bad_limit_is_one_clear_line(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^shared budget \w+=.*: give a number above 0") as caught:
        SharedBudget(**fields)
    assert "\n" not in str(caught.value)
