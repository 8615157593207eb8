"""Many problems on one engine: in order, each with its own error, shared fairly between tenants."""

from collections import Counter

import anyio
import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import Event
from branchwise.reasoning.many import in_turn
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.shared import SharedBudget
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.verifiers.problem import Problem
from hypothesis import given
from hypothesis import strategies as st
from support.oracle_engine import OracleEngine
from support.searching import Samples, outside_engine, scripted, uneven
from support.turns import turn_info

BUDGET = Budget(tokens=500)


def solved(results: list[Solution | Exception]) -> list[Solution]:
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [result for result in results if isinstance(result, Solution)]


@pytest.mark.anyio
@pytest.mark.parametrize("at_once", [None, 1, 2])
async def test_many_are_solved_as_each_alone_in_the_order_they_came(at_once: int | None) -> None:
    problems = [Problem(text="task", id=str(index)) for index in range(5)]
    async with Reasoner.over(scripted(pace=uneven)) as reasoner:
        many = await reasoner.solve_many(problems, Samples(n=3), BUDGET, seed=4, at_once=at_once)
        alone = [await reasoner.solve(problem, Samples(n=3), BUDGET, seed=4) for problem in problems]
    assert [outside_engine(one) for one in solved(many)] == [outside_engine(one) for one in alone]


@pytest.mark.anyio
async def test_an_error_stands_in_the_place_of_its_problem() -> None:
    engine = scripted()
    async with Reasoner.over(engine) as reasoner:
        first, second, third = await reasoner.solve_many(["task", " ", "task"], Samples(n=2), BUDGET)
    assert isinstance(first, Solution)
    assert isinstance(second, UsageError)
    assert "empty problem" in str(second)
    assert isinstance(third, Solution)
    assert engine.live_sequences == 0


@pytest.mark.anyio
async def test_each_problem_goes_to_the_engine_for_its_tenant() -> None:
    engine = scripted()
    async with Reasoner.over(engine) as reasoner:
        await reasoner.solve_many(["task"] * 3, "greedy", BUDGET, tenants=["a", None, "b"], namespace="n")
        await reasoner.solve_many(["task"], "greedy", BUDGET, tenant="c")
        with pytest.raises(UsageError, match="2 problems and 1 tenants"):
            await reasoner.solve_many(["task"] * 2, "greedy", tenants=["a"])
        with pytest.raises(UsageError, match="at_once=0"):
            await reasoner.solve_many(["task"] * 2, "greedy", at_once=0)
    assert sorted(map(repr, engine.opened_for)) == sorted(
        map(repr, [("n", "a"), ("n", None), ("n", "b"), ("", "c")])
    )


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12))
def test_tenants_take_turns_and_nobody_is_left_out(tenants: list[str | None]) -> None:
    order = in_turn(tenants)
    assert sorted(order) == list(range(len(tenants)))
    for tenant in {*tenants}:
        mine = [place for place in order if tenants[place] == tenant]
        assert mine == sorted(mine)
    for start in range(len(order)):  # nobody goes twice while another, who is still to come, goes not at all
        left = [tenants[place] for place in order[start:]]
        assert len(set(left[: len(set(left))])) == len(set(left))


@pytest.mark.anyio
async def test_a_parent_budget_bounds_them_together() -> None:
    engine, shared = scripted(), SharedBudget(tokens=150)
    async with Reasoner.over(engine) as reasoner:
        results = solved(await reasoner.solve_many(["task"] * 4, Samples(n=4), Budget(parent=shared)))
    assert sum(result.usage.tokens for result in results) == shared.tokens_spent <= 150
    assert Reason.BUDGET in {result.reason for result in results}


@pytest.mark.anyio
@pytest.mark.parametrize("reproducible", [True, False])
async def test_cancelling_the_scope_ends_all_and_leaks_nothing(reproducible: bool) -> None:
    engine = scripted(lambda prompt, seed: "ab;" * 1000, max_model_len=4000, pace=uneven)
    async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
        with anyio.move_on_after(0.05) as scope:
            await reasoner.solve_many(["task"] * 3, Samples(n=2), at_once=2)
        assert scope.cancelled_caught
        assert engine.live_sequences == 0
        interrupt = anyio.Event()
        interrupt.set()
        results = solved(await reasoner.solve_many(["task"] * 3, Samples(n=2), interrupt=interrupt))
        assert {result.reason for result in results} == {Reason.CANCELLED}


class Long(Strategy, tag="long", frozen=True):
    """Branches that each have a token to compute in every step, `length` in all."""

    width: int
    length: int

    async def run(self, search: Search) -> None:
        async def write(branch: Branch) -> None:
            await branch.extend(Until.END, max_tokens=self.length)

        async with search.each(search.root.fork(self.width), write) as done:
            async for _ in done:
                pass


def narrow() -> OracleEngine:
    """An engine of 4 rows a step, whose model never ends by itself."""
    info = msgspec.structs.replace(turn_info(), profile=ModelProfile(final_answer="eos"))
    return OracleEngine(num_blocks=2000, infos=(info,), max_step_tokens=4)


async def share_of_the_light(tenants: tuple[str, str]) -> float:
    """Rows of a search of 4 branches for each one of a search of 8, from when it is asked to its last
    step; each could use all of them."""
    rig, crowded, asked_at = narrow(), anyio.Event(), 0
    rows: list[Counter[str]] = []

    def watch(plan: ModelPlan) -> None:
        sequences = rig.engine.scheduler.family.sequences
        rows.append(Counter(sequences[span.seq].namespace for span in plan.spans))

    def listen(event: Event) -> None:
        if event.tokens_spent >= 16:
            crowded.set()

    rig.runner.before_step = watch
    heavy, light = Long(width=8, length=150), Long(width=4, length=60)
    async with rig.engine as engine, Reasoner.over(engine, reproducible=False) as reasoner:
        async with anyio.create_task_group() as group:

            async def crowd() -> None:
                await reasoner.solve(
                    "x", heavy, namespace="heavy", tenant=tenants[0], on_event=listen, deltas=True
                )

            group.start_soon(crowd)
            await crowded.wait()
            asked_at = len(rows)
            await reasoner.solve("x", light, namespace="light", tenant=tenants[1])
            group.cancel_scope.cancel()
        await rig.quiet()
        assert rig.pool.owned == 0
    last = max(place for place, counted in enumerate(rows) if counted["light"])
    both = sum(rows[asked_at : last + 1], Counter[str]())
    return both["light"] / both["heavy"]


@pytest.mark.anyio
async def test_a_tenant_with_few_branches_has_as_many_rows_as_one_with_many() -> None:
    assert await share_of_the_light(("a", "b")) == pytest.approx(1.0, rel=0.3)
    assert await share_of_the_light(("a", "a")) < 0.5, "with one name they are one tenant"


@pytest.mark.anyio
async def test_of_one_tenant_the_higher_priority_goes_first() -> None:
    rig = narrow()
    order: list[int] = []

    async with rig.engine as engine, Reasoner.over(engine, reproducible=False) as reasoner:

        async def one(priority: int) -> None:
            strategy = Long(width=4, length=40)
            await reasoner.solve(f"task {priority}", strategy, Budget(tokens=160), priority=priority)
            order.append(priority)

        async with anyio.create_task_group() as group:
            for priority in (1, 3, 0, 2):
                group.start_soon(one, priority)
    assert order == [3, 2, 1, 0]
