"""How a search ends when its strategy ends the process, and who may still spend when it is over."""

import asyncio

import anyio
import pytest
import structlog
from branchwise.engine.errors import HandleError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.caps import caps_in_force
from branchwise.reasoning.solution import Reason
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.strategies.best_of_n import BestOfN
from support.searching import scripted, search, solve

both_orders = pytest.mark.parametrize("reproducible", [True, False])


class Exits(Strategy, tag="exits", frozen=True, kw_only=True):
    """Raises what ends a process, in `run` itself, in the block of `each` or in one of its tasks."""

    error: str
    where: str

    async def run(self, search: Search) -> None:
        error = SystemExit(4) if self.error == "exit" else KeyboardInterrupt()

        async def finish(branch: Branch) -> None:
            await branch.extend(Until.ANSWER)
            if self.where == "task":
                raise error

        async with search.each(search.root.fork(2), finish) as done:
            async for branch in done:
                search.offer(branch)
                if self.where == "block":
                    raise error
        if self.where == "run":
            raise error


@both_orders
@pytest.mark.parametrize("where", ["run", "block", "task"])
def test_sys_exit_fails_the_search_with_one_line(where: str, reproducible: bool) -> None:
    engine = scripted()
    solution = solve(engine, Exits(error="exit", where=where), reproducible=reproducible)
    assert (solution.reason, solution.error) == (Reason.FAILED, "the strategy called sys.exit(4)")
    assert (solution.answer is None) == (where == "task")
    assert engine.live_sequences == 0


@both_orders
@pytest.mark.parametrize("where", ["run", "block", "task"])
def test_a_keyboard_interrupt_cancels_the_search(where: str, reproducible: bool) -> None:
    engine = scripted()
    solution = solve(engine, Exits(error="interrupt", where=where), reproducible=reproducible)
    assert (solution.reason, solution.error) == (Reason.CANCELLED, None)
    assert (solution.answer is None) == (where == "task")
    assert engine.live_sequences == 0


late: list[object] = []


class Outlives(Strategy, tag="outlives", frozen=True):
    """Starts a task that nobody waits for, and that goes on when the search is over."""

    async def run(self, search: Search) -> None:
        async def outside() -> None:
            await asyncio.sleep(0.05)
            uses = (lambda: search.open("task"), search.root.extend, lambda: search.root.append("a;"))
            for use in uses:
                try:
                    late.append(await use())
                except HandleError as error:
                    late.append(error)
            run = search.root.run  # pyright: ignore[reportAttributeAccessIssue]
            late.append(run.ledger.charge(1, 1, caps_in_force(), answering=True))

        late.append(asyncio.ensure_future(outside()))
        await search.root.extend()


def test_a_task_that_outlives_its_search_spends_nothing() -> None:
    async def main() -> None:
        engine = scripted()
        solution = await search(engine, Outlives())
        spent = solution.usage.tokens
        task = late.pop(0)
        assert isinstance(task, asyncio.Future)
        await task
        assert [type(one) for one in late] == [HandleError, HandleError, HandleError, bool]
        assert late[-1] is False
        assert "the search is over" in str(late[0])
        assert solution.graph.tokens_spent == spent
        assert engine.live_sequences == 0

    late.clear()
    anyio.run(main)


@pytest.mark.parametrize("max_tokens", [9, 12, 40])
def test_the_longest_candidate_counts_thinking_and_answer_together(max_tokens: int) -> None:
    solution = solve(scripted(), BestOfN(n=6), Budget(tokens=1000), max_tokens=max_tokens)
    assert solution.candidates
    assert all(candidate.tokens <= max_tokens for candidate in solution.candidates)


class Leaves(Strategy, tag="leaves", frozen=True, kw_only=True):
    """Ends the work of one branch itself, and that of the other by leaving the block."""

    async def run(self, search: Search) -> None:
        own = anyio.CancelScope()

        async def finish(branch: Branch) -> None:
            if branch.id == "0.0":
                return
            with own if branch.id == "0.1" else anyio.CancelScope():
                await branch.extend(Until.ANSWER)

        async with search.each(search.root.fork(3), finish) as done:
            async for _ in done:
                await anyio.sleep(0.01)
                own.cancel()
                await anyio.sleep(0.01)
                break


@both_orders
def test_cancelled_work_ends_for_one_reason_whoever_hears_of_it_first(reproducible: bool) -> None:
    engine = scripted(lambda prompt, seed: "ab;" * 100_000, max_model_len=10**6)
    solution = solve(engine, Leaves(), Budget(seconds=60), reproducible=reproducible)
    reasons = {node.branch: (node.reason, node.stop) for node in solution.graph.nodes()}
    assert reasons["0.1"] == reasons["0.2"] == ("left unfinished", "cancelled")
    assert engine.live_sequences == 0


def test_a_branch_that_runs_on_into_the_end_of_its_block_has_not_failed() -> None:
    class Late(Strategy, tag="late", frozen=True, kw_only=True):
        async def run(self, search: Search) -> None:
            async def finish(branch: Branch) -> None:
                if branch.id == "0.0":
                    return
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.01)
                    await branch.evaluate()

            async with search.each(search.root.fork(2), finish) as done:
                async for _ in done:
                    break

    with structlog.testing.capture_logs() as logs:
        solution = solve(scripted(), Late(), reproducible=False)
    assert (solution.reason, solution.error, logs) == (Reason.EXHAUSTED, None, [])
