"""Cancelling at every await point leaks nothing, touches nobody else, and keeps what was committed."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest
from branchwise.engine.protocol import ScoreParams
from support.checks import RecordingMeter, extend_params
from support.oracle import NaiveEngine, oracle_info
from support.oracle_engine import OracleEngine

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.pins(
        "vllm#57061", "vllm#7111", "sglang#2238", "sglang#24070", "sglang#36926", "sglang#38981", "vllm#24382"
    ),
]

PROMPT = list(range(1, 12))


class Turns:
    """Counts the turns of the event loop that a task takes, and cancels it at one of them."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, work: Callable[[], Awaitable[None]], cancel_at: int | None) -> bool:
        """Whether `work` ran to its end."""
        scope, done = anyio.CancelScope(), anyio.Event()
        ended = False

        async def watched() -> None:
            nonlocal ended
            with scope:
                await work()
                ended = True
            done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(watched)
            while not done.is_set():
                if self.count == cancel_at:
                    scope.cancel()
                self.count += 1
                await anyio.lowlevel.checkpoint()
        return ended


async def search(rig: OracleEngine, meter: RecordingMeter) -> None:
    """A little of everything, in one task and its children."""
    engine, opened = rig.engine, []
    try:
        opened.append(root := engine.open(PROMPT, seed=1))
        opened += (children := engine.fork(root, [2, 3]))
        await engine.extend(children[0], extend_params(2), meter, lambda tokens: None)
        await engine.score(children[0], ScoreParams(logprobs_from=5), meter)
        engine.append(children[1], [4, 5])
        opened += (grandchildren := engine.fork(children[1], [6, 7]))
        async with anyio.create_task_group() as group:
            for seq in (children[0], *grandchildren):
                group.start_soon(engine.extend, seq, extend_params(3), meter)
    finally:
        for seq in opened:
            engine.release(seq)


async def attempt(cancel_at: int | None) -> tuple[int, bool]:
    rig = OracleEngine(num_blocks=200, max_step_tokens=8, infos=(oracle_info(max_model_len=400),))
    meter, other_meter = RecordingMeter(), RecordingMeter()
    turns, ended = Turns(), False
    others: list[tuple[int, ...]] = []

    async def run_neighbour() -> None:
        seq = rig.engine.open([9] * 7, seed=9)
        others.append((await rig.engine.extend(seq, extend_params(12), other_meter)).tokens)
        rig.engine.release(seq)

    async with rig.engine, anyio.create_task_group() as group:
        group.start_soon(run_neighbour)
        ended = await turns.run(lambda: search(rig, meter), cancel_at)
        await rig.quiet()
        assert meter.balance() == (0, 0, 0)
    assert list(others[0]) == NaiveEngine.extend([9] * 7, 9, extend_params(12), 99)[0]
    assert other_meter.balance() == (0, 0, 0)
    rig.engine.scheduler.check()
    assert rig.pool.owned == 0
    assert rig.engine.scheduler.family.sequences == {}
    sampled = sum(work.tokens for meters in (meter, other_meter) for work in meters.committed)
    assert rig.runner.samples.total() == sampled
    return turns.count, ended


async def test_cancelling_at_every_turn_leaks_nothing() -> None:
    turns, ended = await attempt(None)
    assert ended
    cancelled = 0
    for cancel_at in range(min(turns, 80)):
        _, ended = await attempt(cancel_at)
        cancelled += not ended
    assert cancelled > 10


async def test_what_was_committed_before_the_cancellation_stays() -> None:
    rig = OracleEngine(num_blocks=600)
    meter = RecordingMeter()
    async with rig.engine as engine:
        seq = engine.open(PROMPT, seed=1)
        enough = anyio.Event()

        def seen(tokens: object) -> None:
            if rig.runner.steps >= 5:
                enough.set()

        async with anyio.create_task_group() as group:
            group.start_soon(engine.extend, seq, extend_params(2000), meter, seen)
            await enough.wait()
            group.cancel_scope.cancel()
        kept = list(engine.scheduler.family.sequences[seq].tokens)
        count = len(kept) - len(PROMPT)
        assert count >= 5
        assert sum(work.tokens for work in meter.committed) == count
        assert meter.balance() == (0, 0, 0)
        again = await engine.extend(seq, extend_params(3), meter)
        whole = NaiveEngine.extend(PROMPT, 1, extend_params(count + 3), 9999)[0]
        assert kept[len(PROMPT) :] + list(again.tokens) == whole


async def test_a_deadline_ends_the_wait() -> None:
    rig = OracleEngine(num_blocks=600)
    async with rig.engine as engine:
        seq = engine.open(PROMPT, seed=1)
        with anyio.move_on_after(0.02) as scope:
            await engine.extend(seq, extend_params(2000), RecordingMeter())
        assert scope.cancelled_caught
        engine.release(seq)
        await rig.quiet()
        assert rig.pool.owned == 0
