"""Leaving a block prunes what was started in it; cancelling anywhere leaks nothing and keeps what was
offered."""

import anyio
import pytest
from branchwise.engine.errors import HandleError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.solution import Reason
from branchwise.strategies.base import Search, Strategy
from support.searching import DigitVerifier, Samples, scripted, search, solve, uneven


class LeavesByBreak(Strategy, tag="leaves_by_break", frozen=True):
    async def run(self, search: Search) -> None:
        async with search.each(search.root.fork(6), lambda b: b.extend(Until.ANSWER)) as done:
            async for branch in done:
                search.offer(branch)
                break
        search.note("left", live=sum(n.state is NodeState.LIVE for n in search.graph.nodes()))


class LeavesByError(Strategy, tag="leaves_by_error", frozen=True):
    async def run(self, search: Search) -> None:
        async with search.each(search.root.fork(6), lambda b: b.extend(Until.ANSWER)) as done:
            async for branch in done:
                search.offer(branch)
                raise ValueError("strategy bug")


@pytest.mark.parametrize("reproducible", [True, False])
def test_break_prunes_the_rest(reproducible):
    engine = scripted(pace=uneven)
    solution = solve(engine, LeavesByBreak(), reproducible=reproducible)
    assert len(solution.candidates) == 1
    assert solution.reason is Reason.EXHAUSTED
    assert engine.live_sequences == 0
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_sampled


@pytest.mark.parametrize("reproducible", [True, False])
def test_error_in_the_block_ends_as_failed_and_keeps_the_offered(reproducible):
    engine = scripted(pace=uneven)
    solution = solve(engine, LeavesByError(), reproducible=reproducible)
    assert solution.reason is Reason.FAILED
    assert solution.error == "strategy bug"
    assert solution.answer is not None
    assert engine.live_sequences == 0


@pytest.mark.parametrize("fail_at", [0, 1, 17, 60])
def test_a_failed_branch_is_recorded_and_the_rest_go_on(fail_at):
    engine = scripted(fail_at=fail_at, pace=uneven)
    solution = solve(engine, Samples(n=6))
    assert len(solution.candidates) == 5
    failed = [n for n in solution.graph.nodes() if n.reason.startswith("failed")]
    assert failed or fail_at == 0
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_sampled
    assert engine.live_sequences == 0


@pytest.mark.parametrize("reproducible", [True, False])
def test_cancel_at_every_await_point_leaks_nothing(reproducible):
    async def run_until(turns: int) -> bool:
        engine = scripted(pace=uneven)
        finished = False

        async def run() -> None:
            nonlocal finished
            solution = await search(engine, Samples(n=4), Budget(tokens=200), reproducible=reproducible)
            assert solution.graph.tokens_spent == solution.usage.tokens
            finished = True

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert engine.live_sequences == 0
        return finished

    turns = 0
    while not anyio.run(run_until, turns):
        turns += 1 if turns < 80 else turns // 8
        assert turns < 20_000


@pytest.mark.parametrize("turns", [0, 5, 60, 200, 700])
def test_interrupt_returns_the_best_so_far(turns):
    async def main():
        engine = scripted(pace=uneven)
        interrupt = anyio.Event()
        solution = None
        async with anyio.create_task_group() as group:

            async def later() -> None:
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                interrupt.set()

            group.start_soon(later)
            solution = await search(engine, Samples(n=30), interrupt=interrupt)
        assert engine.live_sequences == 0
        assert solution is not None
        return solution

    solution = anyio.run(main)
    assert solution.reason in (Reason.CANCELLED, Reason.EXHAUSTED)
    assert solution.graph.tokens_spent == solution.usage.tokens


def test_deadline_ends_the_search_in_time():
    endless = "ab;" * 100_000
    engine = scripted(lambda prompt, seed: endless, max_model_len=1_000_000, pace=lambda s, p: 200)
    solution = solve(engine, Samples(n=2), Budget(seconds=0.2))
    assert solution.reason is Reason.DEADLINE
    assert solution.usage.tokens < len(endless), "ended in the middle"


def test_a_sound_pass_ends_the_search():
    engine = scripted()
    solution = solve(engine, Samples(n=40), verifier=DigitVerifier("3"))
    assert solution.reason is Reason.SOLVED
    assert solution.answer == "3"
    assert solution.verified is True
    assert len(solution.candidates) < 40


def test_refuted_candidates_are_no_answer():
    solution = solve(scripted(), Samples(n=4), verifier=DigitVerifier("x"))
    assert solution.reason is Reason.EXHAUSTED
    assert solution.answer is None
    assert solution.verified is False


class Misuses(Strategy, tag="misuses", frozen=True):
    async def run(self, search: Search) -> None:
        branch, other = search.root.fork(2)
        async with anyio.create_task_group() as group:
            group.start_soon(branch.extend, Until.ANSWER)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(HandleError, match="busy"):
                branch.fork(2)
            with pytest.raises(HandleError, match="busy"):
                branch.truncate(0)
        other.prune("test")
        other.prune("again")
        with pytest.raises(HandleError, match="pruned"):
            other.fork(1)
        with pytest.raises(HandleError, match="pruned"):
            await other.extend()
        search.offer(branch)


def test_misused_handles_are_typed_errors():
    solution = solve(scripted(), Misuses())
    assert solution.reason is Reason.EXHAUSTED, solution.error
