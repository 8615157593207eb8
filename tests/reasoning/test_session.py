"""A search by the caller's own code: all verbs of a branch under one budget, and nothing is left when the
block is left."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from branchwise.engine.errors import HandleError, UsageError
from branchwise.engine.text.stop import Stop, Until
from branchwise.reasoning.branch import SearchBranch
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import BranchOpened, Event, Pruned
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.shared import SharedBudget
from branchwise.strategies.base import Branch
from branchwise.verifiers.problem import Problem
from support.oracle_engine import OracleEngine
from support.scripted import ScriptedEngine
from support.searching import DigitVerifier, Samples, scripted, uneven
from support.turns import turn_info

Use = Callable[[SearchBranch], Awaitable[None]]


def use(engine: ScriptedEngine, body: Use, *, reproducible: bool = True, **options: Any) -> None:
    async def main() -> None:
        async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
            async with reasoner.session(Problem(text="task"), seed=0, **options) as root:
                await body(root)
            assert engine.live_sequences == 0

    anyio.run(main)


async def finish(branch: Branch) -> None:
    await branch.extend(Until.ANSWER)
    await branch.evaluate()


@pytest.mark.parametrize("reproducible", [True, False])
def test_own_code_forks_extends_scores_and_prunes(reproducible: bool) -> None:
    engine = scripted(pace=uneven)

    async def body(root: SearchBranch) -> None:
        first, second, third = root.fork(3)
        third.prune("not wanted")
        await first.append("ab;")
        async with anyio.create_task_group() as group:
            for branch in (first, second):
                group.start_soon(finish, branch)
        assert first.text.startswith("ab;")
        assert first.complete
        assert second.complete
        assert (second.score == 1.0) == (second.answer == "3") == second.verified
        assert root.budget.tokens_spent == root.graph.tokens_spent == engine.tokens_sampled + 3
        assert root.budget.kv_owned > 0

    use(engine, body, verifier=DigitVerifier("3"), reproducible=reproducible)


def test_it_writes_what_a_strategy_writes_under_the_same_seed() -> None:
    texts: list[str] = []

    async def body(root: SearchBranch) -> None:
        (branch,) = root.fork(1)
        await branch.extend(Until.ANSWER)
        texts.append(branch.text)

    use(scripted(), body)

    async def main() -> str:
        async with Reasoner.over(scripted()) as reasoner:
            return (await reasoner.solve(Problem(text="task"), Samples(n=1), seed=0)).text

    assert texts == [anyio.run(main)]


def test_its_budget_is_hard_and_a_spent_one_says_so_in_the_step() -> None:
    engine, shared = scripted(), SharedBudget(tokens=25)

    async def body(root: SearchBranch) -> None:
        branches = root.fork(4)
        stops: list[Stop] = []

        async def run(branch: Branch) -> None:
            stops.append((await branch.extend(Until.END)).stop)

        async with anyio.create_task_group() as group:
            for branch in branches:
                group.start_soon(run, branch)
        assert Stop.BUDGET in stops
        assert (await branches[0].append("W")).stop is Stop.BUDGET
        assert root.budget.tokens_left == 0
        assert root.budget.spent

    use(engine, body, budget=Budget(tokens=40, parent=shared, answer_reserve=0))
    assert engine.tokens_sampled == shared.tokens_spent == 25


def test_past_its_seconds_extensions_end_with_stop_budget() -> None:
    engine = scripted(lambda prompt, seed: "ab;" * 100_000, max_model_len=1_000_000, pace=lambda s, p: 100)

    async def body(root: SearchBranch) -> None:
        step = await root.extend(Until.END)
        assert step.stop is Stop.BUDGET
        assert root.budget.seconds_left == 0.0
        assert root.live

    use(engine, body, budget=Budget(seconds=0.1))


def test_branches_end_with_the_block() -> None:
    kept: list[Branch] = []
    events: list[Event] = []

    async def body(root: SearchBranch) -> None:
        kept.extend([root, *root.fork(2)])
        await kept[1].extend()

    use(scripted(), body, on_event=events.append)
    assert not any(branch.live for branch in kept)
    opened = {event.branch for event in events if isinstance(event, BranchOpened)}
    assert {event.branch for event in events if isinstance(event, Pruned)} == opened == {"0", "0.0", "0.1"}
    with pytest.raises(HandleError, match="pruned"):
        kept[1].fork(1)


@pytest.mark.parametrize("reproducible", [True, False])
@pytest.mark.parametrize("other", ["prune", "extend", "append", "conclude"])
def test_a_branch_that_is_being_appended_to_takes_nothing_else_and_a_pruned_one_is_charged_nothing(
    other: str, reproducible: bool
) -> None:
    async def body(root: SearchBranch) -> None:
        (branch,) = root.fork(1)
        refused: list[str] = []

        async def tell(work: Callable[[], Awaitable[object]]) -> None:
            try:
                await work()
            except HandleError as error:
                refused.append(str(error))

        async def prune() -> None:
            branch.prune("not wanted")

        others = {
            "prune": prune,
            "extend": branch.extend,
            "append": lambda: branch.append("x"),
            "conclude": branch.conclude,
        }
        async with anyio.create_task_group() as group:
            group.start_soon(tell, lambda: branch.append("ab;"))
            group.start_soon(tell, others[other])  # while the first one waits for its turn
        [said] = refused
        assert ("it was pruned" if other == "prune" else "it is busy") in said
        written = 0 if other == "prune" else 3
        assert len(branch.tokens) == root.budget.tokens_spent == root.graph.tokens_spent == written
        if not branch.live:
            assert root.budget.kv_owned == 0

    use(scripted(), body, reproducible=reproducible)


class OwnError(Exception):
    pass


@pytest.mark.parametrize("reproducible", [True, False])
@pytest.mark.parametrize("way", ["error", "cancel", "task left running"])
def test_leaving_early_leaks_nothing(way: str, reproducible: bool) -> None:
    async def extend(branch: Branch) -> None:
        with contextlib.suppress(HandleError):  # it may be pruned before this task begins
            await branch.extend(Until.END)

    async def leave(turns: int) -> None:
        engine = scripted(pace=uneven)
        async with (
            Reasoner.over(engine, reproducible=reproducible) as reasoner,
            anyio.create_task_group() as outside,
        ):
            with anyio.CancelScope() as scope:
                try:
                    async with reasoner.session(Problem(text="task"), seed=0) as root:
                        for branch in root.fork(3):
                            outside.start_soon(extend, branch)
                        for _ in range(turns):
                            await anyio.lowlevel.checkpoint()
                        if way == "error":
                            raise OwnError
                        if way == "cancel":
                            scope.cancel()
                            await anyio.sleep_forever()
                except OwnError:
                    pass
            assert engine.live_sequences == 0

    for turns in (0, 1, 2, 5, 9, 20, 60, 200):
        anyio.run(leave, turns)


@pytest.mark.anyio
async def test_leaving_early_frees_every_block_of_the_engine() -> None:
    rig = OracleEngine(num_blocks=200, infos=(turn_info(),))
    grown = anyio.Event()

    def listen(event: Event) -> None:
        if event.tokens_spent >= 30:
            grown.set()

    async with rig.engine as engine, Reasoner.over(engine, reproducible=False) as reasoner:
        async with (
            reasoner.session("task of a session", seed=0, on_event=listen, deltas=True) as root,
            anyio.create_task_group() as group,
        ):
            for branch in root.fork(5):
                group.start_soon(branch.extend, Until.END)
            await grown.wait()
            assert rig.pool.owned > 0
            group.cancel_scope.cancel()
        await rig.quiet()
        assert rig.pool.owned == 0
        assert not rig.engine.scheduler.family.sequences


@pytest.mark.anyio
async def test_token_ids_are_a_prompt_as_they_stand() -> None:
    rig = OracleEngine(num_blocks=200, infos=(turn_info(),))
    async with rig.engine as engine, Reasoner.over(engine) as reasoner:
        async with reasoner.session([5, 6, 7], seed=1) as root:
            assert list(root.prompt) == [5, 6, 7]
            assert (await root.extend(Until.END, max_tokens=4)).generated in range(1, 5)
        with pytest.raises(UsageError):
            async with reasoner.session([5, 600], seed=1):
                pass


def test_what_does_not_fit_is_refused_before_anything_runs() -> None:
    class Oracle(DigitVerifier):
        oracle = True

    engine = scripted()
    with pytest.raises(UsageError, match="--oracle"):
        use(engine, finish, verifier=Oracle("3"))
    with pytest.raises(TypeError, match="budgte"):
        use(engine, finish, budgte=Budget(tokens=3))
    assert engine.opened_for == []
