"""How an engine ends, and what it says of a step that does not."""

import threading

import anyio
import pytest
from branchwise.engine.errors import EngineClosed, QueueFullError
from branchwise.engine.protocol import Extension, Unlimited
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.watchdog import Watchdog
from structlog.testing import capture_logs
from support.checks import extend_params
from support.oracle_engine import OracleEngine

METER = Unlimited()


@pytest.mark.anyio
@pytest.mark.parametrize(("drain_s", "finishes"), [(30.0, True), (0.0, False)])
async def test_shutdown_drains_where_it_was_asked_to(drain_s: float, finishes: bool) -> None:
    rig = OracleEngine(num_blocks=200, drain_s=drain_s)
    results: list[Extension | Exception] = []

    async def run() -> None:
        try:
            results.append(await rig.engine.extend(seq, extend_params(40), METER))
        except EngineClosed as error:
            results.append(error)

    async with anyio.create_task_group() as group:
        async with rig.engine:
            seq = rig.engine.open([1, 2, 3], seed=1)
            group.start_soon(run)
            await rig.quiet()
        with pytest.raises(EngineClosed):
            rig.engine.open([1], seed=1)
    [result] = results
    assert isinstance(result, Extension if finishes else EngineClosed)
    if isinstance(result, Extension):
        assert result.generated == 40


@pytest.mark.anyio
async def test_a_drain_ends_at_its_deadline() -> None:
    rig = OracleEngine(num_blocks=200, drain_s=0.05)
    release = threading.Event()
    errors: list[Exception] = []

    def block(plan: ModelPlan) -> None:
        release.wait(0.2)

    async def run() -> None:
        try:
            await rig.engine.extend(seq, extend_params(400), METER)
        except EngineClosed as error:
            errors.append(error)

    rig.runner.before_step = block
    async with anyio.create_task_group() as group, rig.engine:
        seq = rig.engine.open([1, 2, 3], seed=1)
        group.start_soon(run)
        await rig.quiet()
    assert len(errors) == 1


@pytest.mark.anyio
async def test_a_drain_without_work_ends_at_once() -> None:
    rig = OracleEngine(drain_s=60.0)
    with anyio.fail_after(20):
        async with rig.engine as engine:
            await engine.extend(engine.open([1, 2, 3], seed=1), extend_params(2), METER)


@pytest.mark.anyio
async def test_a_stuck_step_is_reported_and_not_ended() -> None:
    rig = OracleEngine(stuck_after_s=0.02)
    stuck = threading.Event()

    def block(plan: ModelPlan) -> None:
        stuck.wait(0.3)
        stuck.set()

    rig.runner.before_step = block
    async with rig.engine as engine:
        extension = await engine.extend(engine.open([1, 2, 3], seed=1), extend_params(3), METER)
        assert extension.generated == 3
        assert "branchwise_stuck_steps_total 1.0" in engine.metrics.render()


def test_a_stuck_step_is_reported_once() -> None:
    watchdog = Watchdog(1.0)
    with capture_logs() as events:
        watchdog.look(100.0)
        watchdog.enter(7, 100.0)
        for now in (100.5, 101.5, 103.0):
            watchdog.look(now)
        watchdog.leave()
        watchdog.look(200.0)
        watchdog.enter(8, 200.0)
        watchdog.look(201.5)
    assert [(event["event"], event["step"], event["seconds"]) for event in events] == [
        ("a step is stuck", 7, 1.5),
        ("a step is stuck", 8, 1.5),
    ]
    assert watchdog.reports == 2


@pytest.mark.anyio
async def test_a_full_queue_is_told_to_the_caller() -> None:
    rig = OracleEngine(max_step_tokens=1, max_waiting=1)
    refused: list[QueueFullError] = []

    async def run(seed: int) -> None:
        seq = rig.engine.open([seed, 2, 3], seed=seed)
        try:
            await rig.engine.extend(seq, extend_params(2), METER)
        except QueueFullError as error:
            refused.append(error)
        rig.engine.release(seq)

    async with rig.engine, anyio.create_task_group() as group:
        for seed in range(1, 5):
            group.start_soon(run, seed)
    assert refused
    assert "the most are 1" in str(refused[0])
