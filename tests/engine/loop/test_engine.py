"""The facade: results, errors at the call, streaming, closing. On both event loops."""

import threading

import anyio
import anyio.lowlevel
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.errors import (
    CapabilityError,
    CapacityError,
    EngineClosed,
    HandleError,
    StepFailed,
    UsageError,
)
from branchwise.engine.protocol import (
    Backend,
    EngineUsage,
    Extension,
    ScoreParams,
    SeqId,
    Unlimited,
    Verdict,
    Work,
)
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.text.stop import Stop, StopRule
from support.checks import RecordingMeter, extend_params
from support.oracle import EOS, NaiveEngine, oracle_info
from support.oracle_engine import OracleEngine

pytestmark = pytest.mark.anyio

PROMPT = list(range(1, 12))
METER = Unlimited()


async def test_it_is_a_backend_that_gives_what_the_naive_engine_gives() -> None:
    rig = OracleEngine(num_blocks=300)
    backend: Backend = rig.engine
    usage = EngineUsage()
    extensions: dict[int, Extension] = {}

    async def run(seed: int, seq: SeqId) -> None:
        extensions[seed] = await backend.extend(seq, extend_params(6), METER)

    async with rig.engine:
        root = backend.open(PROMPT, seed=1, usage=usage)
        seeds = range(50, 66)
        children = backend.fork(root, seeds)
        backend.release(root)
        async with anyio.create_task_group() as group:
            for seed, child in zip(seeds, children, strict=True):
                group.start_soon(run, seed, child)
        scores = await backend.score(children[0], ScoreParams(logprobs_from=len(PROMPT)), METER)
        for seed, extension in extensions.items():
            expected = NaiveEngine.extend(PROMPT, seed, extend_params(6), 99)
            assert (list(extension.tokens), list(extension.logprobs), extension.stop) == expected
        assert list(scores.logprobs) == pytest.approx(list(extensions[50].logprobs))
        assert usage.prefill_tokens == len(PROMPT)
        assert rig.runner.steps <= 7  # the batch was full: nobody decoded alone
        for child in children:
            backend.release(child)
        await rig.quiet()
        assert rig.pool.owned == 0
        assert backend.capabilities.exact_meter
        assert backend.models["policy"].vocab_size == 50


async def test_wrong_calls_are_refused_at_once() -> None:
    rig = OracleEngine(num_blocks=9, infos=(oracle_info(max_model_len=60),))
    engine = rig.engine
    with pytest.raises(EngineClosed, match="not running"):
        engine.open(PROMPT, seed=1)
    async with engine:
        seq = engine.open(PROMPT, seed=1)
        with pytest.raises(UsageError, match="empty"):
            engine.open([], seed=1)
        with pytest.raises(UsageError, match="no model 'draft'"):
            engine.open(PROMPT, seed=1, model="draft")
        with pytest.raises(UsageError, match="token id 50"):
            engine.open([1, 50], seed=1)
        with pytest.raises(UsageError, match="token id -1"):
            engine.append(seq, [-1])
        with pytest.raises(CapacityError, match=r"61 tokens .* 60 positions"):
            engine.open([1] * 61, seed=1)
        with pytest.raises(CapacityError, match=r"33 tokens .* 32 positions"):
            engine.open([1] * 33, seed=1)
        with pytest.raises(CapacityError, match=r"33 tokens .* 32 positions"):
            engine.append(seq, [1] * 22)
        with pytest.raises(UsageError, match="truncate at 12"):
            engine.truncate(seq, 12)
        with pytest.raises(UsageError, match="truncate at 0"):
            engine.truncate(seq, 0)
        with pytest.raises(UsageError, match="logprobs_from is 0"):
            await engine.score(seq, ScoreParams(logprobs_from=0), METER)
        with pytest.raises(CapabilityError, match="no reward head"):
            await engine.score(seq, ScoreParams(reward_at=(1,)), METER)
        engine.release(seq)
        engine.release(seq)
        for call in (engine.fork, engine.append, engine.truncate):
            with pytest.raises(HandleError, match="released"):
                call(seq, 1)  # pyright: ignore[reportArgumentType]
        with pytest.raises(HandleError, match="released"):
            await engine.extend(seq, extend_params(), METER)
    with pytest.raises(EngineClosed, match="closed"):
        engine.open(PROMPT, seed=1)


async def test_a_busy_sequence_cannot_be_changed() -> None:
    rig = OracleEngine(num_blocks=300)
    engine = rig.engine
    async with engine, anyio.create_task_group() as group:
        seq = engine.open(PROMPT, seed=1)
        group.start_soon(engine.extend, seq, extend_params(300), METER)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        for call in (engine.fork, engine.append, engine.truncate):
            with pytest.raises(HandleError, match="being extended"):
                call(seq, [1])  # pyright: ignore[reportArgumentType]
        with pytest.raises(HandleError, match="being extended"):
            await engine.extend(seq, extend_params(), METER)
        engine.park(seq)  # a hint only
        group.cancel_scope.cancel()


async def test_a_reward_model_scores_and_does_not_generate() -> None:
    rig = OracleEngine(infos=(oracle_info(), oracle_info("prm", head="reward")))
    async with rig.engine as engine:
        seq = engine.open(PROMPT, seed=1, model="prm")
        scores = await engine.score(seq, ScoreParams(reward_at=(3, 9)), METER)
        assert list(scores.rewards) == NaiveEngine.rewards(PROMPT, (3, 9))
        with pytest.raises(CapabilityError, match="reward head"):
            await engine.extend(seq, extend_params(), METER)
        with pytest.raises(CapabilityError, match="no token probabilities"):
            await engine.score(seq, ScoreParams(logprobs_from=3), METER)
        with pytest.raises(UsageError, match="position 11"):
            await engine.score(seq, ScoreParams(reward_at=(11,)), METER)
        assert (await engine.score(seq, ScoreParams(), METER)).rewards == ()


async def test_tokens_are_streamed_as_they_come() -> None:
    rig = OracleEngine()
    async with rig.engine as engine:
        deltas: list[list[int]] = []
        extension = await engine.extend(
            engine.open(PROMPT, seed=1), extend_params(6), METER, lambda tokens: deltas.append(list(tokens))
        )
        assert [token for delta in deltas for token in delta] == list(extension.tokens)
        assert len(deltas) == 6


async def test_a_callback_that_raises_ends_its_own_request() -> None:
    def broken(tokens: object) -> None:
        raise LookupError("broken callback")

    rig = OracleEngine(num_blocks=300)
    async with rig.engine as engine:
        seq = engine.open(PROMPT, seed=1)
        with pytest.raises(LookupError, match="broken callback"):
            await engine.extend(seq, extend_params(900), METER, broken)
        assert (await engine.extend(seq, extend_params(2), METER)).generated == 2


async def test_a_failed_step_raises_in_its_callers_and_the_engine_goes_on() -> None:
    rig = OracleEngine()
    async with rig.engine as engine:
        seq = engine.open(PROMPT, seed=1)
        rig.fail_once()
        with pytest.raises(StepFailed, match="injected") as caught:
            await engine.extend(seq, extend_params(4), METER)
        assert isinstance(caught.value.__cause__, ConnectionError)
        extension = await engine.extend(seq, extend_params(4), METER)
        assert list(extension.tokens) == NaiveEngine.extend(PROMPT, 1, extend_params(4), 99)[0]


async def test_deferred_work_waits_for_a_notice_and_burns_no_time() -> None:
    asked = threading.Event()

    class Telling(RecordingMeter):
        def grant(self, work: Work) -> Verdict:
            asked.set()
            return super().grant(work)

    meter = Telling()
    meter.verdicts = [Verdict.DEFER]
    rig = OracleEngine()
    async with rig.engine as engine, anyio.create_task_group() as group:
        seq = engine.open(PROMPT, seed=1)
        group.start_soon(engine.extend, seq, extend_params(2), meter)
        await anyio.to_thread.run_sync(asked.wait)
        await anyio.sleep(0.05)
        assert meter.asked == 1
        engine.notify()
    assert meter.balance() == (0, 0, 0)
    assert len(meter.committed) == 2


async def test_meters_are_called_on_the_engine_thread_and_may_park() -> None:
    threads: set[str] = set()

    class Parking(RecordingMeter):
        def grant(self, work: Work) -> Verdict:
            threads.add(threading.current_thread().name)
            rig.engine.park(idle)
            return super().grant(work)

    rig = OracleEngine()
    async with rig.engine as engine:
        idle = engine.open([9] * 9, seed=2)
        await engine.extend(idle, extend_params(1), METER)
        seq = engine.open(PROMPT, seed=1)
        await engine.extend(seq, extend_params(3), Parking())
        await rig.quiet()
        assert rig.engine.scheduler.family.sequences[idle].computed == 0
    assert threads == {"branchwise-engine"}


async def test_closing_fails_what_is_pending() -> None:
    meter = RecordingMeter()
    rig = OracleEngine(num_blocks=300)
    failures: list[BaseException] = []

    async def run() -> None:
        seq = rig.engine.open(PROMPT, seed=1)
        try:
            await rig.engine.extend(seq, extend_params(900), meter)
        except EngineClosed as error:
            failures.append(error)
        rig.engine.release(seq)  # allowed also now

    async with anyio.create_task_group() as group, rig.engine:
        group.start_soon(run)
        await anyio.sleep(0.02)
    assert len(failures) == 1
    assert meter.balance() == (0, 0, 0)


async def test_a_bug_on_the_engine_thread_reaches_every_caller() -> None:
    rig = OracleEngine()

    def bug() -> None:
        raise ZeroDivisionError("a bug")

    async with rig.engine as engine:
        seq = engine.open(PROMPT, seed=1)
        engine.post(bug)
        with pytest.raises(EngineClosed):
            await engine.extend(seq, extend_params(900), METER)
        with pytest.raises(EngineClosed):
            engine.open(PROMPT, seed=1)


async def test_releasing_a_sequence_ends_its_extension_as_cancelled() -> None:
    rig = OracleEngine(num_blocks=300)
    extensions: list[Extension] = []

    async def run() -> None:
        extensions.append(await engine.extend(seq, extend_params(900), METER))

    async with rig.engine as engine, anyio.create_task_group() as group:
        seq = engine.open(PROMPT, seed=1)
        group.start_soon(run)
        await anyio.sleep(0.01)
        engine.release(seq)
    assert extensions[0].stop is Stop.CANCELLED
    assert extensions[0].generated == len(extensions[0].tokens)


async def test_the_next_plan_waits_until_the_woken_tasks_have_parked() -> None:
    """Four branches, step by step: whoever is woken by a delivery is in the next batch, so all stay in
    step.
    """
    rig = OracleEngine(num_blocks=300)

    async def run(seq: SeqId) -> None:
        for _ in range(5):
            await engine.extend(seq, extend_params(1), METER)

    async with rig.engine as engine:
        root = engine.open(PROMPT, seed=1)
        async with anyio.create_task_group() as group:
            for child in engine.fork(root, range(4)):
                group.start_soon(run, child)
        assert rig.runner.steps == 5


async def test_settle_is_awaited_after_each_delivery() -> None:
    calls = 0

    async def settle() -> None:
        nonlocal calls
        calls += 1
        await anyio.lowlevel.checkpoint()

    rig = OracleEngine(settle=settle)
    async with rig.engine as engine:
        await engine.extend(engine.open(PROMPT, seed=1), extend_params(1), METER)
    assert calls >= 2  # once when it woke up, once with the result


async def test_generate_yields_text_without_a_search() -> None:
    rig = OracleEngine()
    async with rig.engine as engine:
        rule = StopRule(eos_ids=frozenset({EOS}))
        chunks = [chunk async for chunk in engine.generate(PROMPT, max_tokens=7, seed=3, stop=rule)]
        expected, _, stop = NaiveEngine.extend(PROMPT, 3, extend_params(7, eos_ids=frozenset({EOS})), 99)
        assert [token for chunk in chunks for token in chunk.tokens] == expected
        assert "".join(chunk.text for chunk in chunks).split() == [str(token) for token in expected]
        assert [chunk.stop for chunk in chunks] == [None] * (len(chunks) - 1) + [stop]
        await rig.quiet()
        assert rig.pool.owned == 0


async def test_generate_never_shows_a_stop_string() -> None:
    rig = OracleEngine()
    async with rig.engine as engine:
        expected, _, _ = NaiveEngine.extend(PROMPT, 3, extend_params(9), 99)
        rule = StopRule(strings=(f"{expected[5]} {expected[6]}",))
        chunks = [chunk async for chunk in engine.generate(PROMPT, max_tokens=9, seed=3, stop=rule)]
        assert [token for chunk in chunks for token in chunk.tokens] == expected[:5]
        assert "".join(chunk.text for chunk in chunks).split() == [str(token) for token in expected[:5]]
        assert chunks[-1].stop is Stop.STOP


async def test_closing_the_generator_early_cancels_the_request() -> None:
    rig = OracleEngine(num_blocks=300)
    async with rig.engine as engine:
        generator = engine.generate(PROMPT, max_tokens=900, seed=3)
        async for _ in generator:
            break
        await generator.aclose()
        await rig.quiet()
        assert rig.pool.owned == 0
        assert rig.runner.steps < 900


async def test_two_engines_on_one_event_loop() -> None:
    first, second = OracleEngine(), OracleEngine()
    async with first.engine, second.engine:
        for engine in (first.engine, second.engine):
            extension = await engine.extend(engine.open(PROMPT, seed=1), extend_params(3), METER)
            assert list(extension.tokens) == NaiveEngine.extend(PROMPT, 1, extend_params(3), 99)[0]


def test_a_step_needs_rows() -> None:
    with pytest.raises(UsageError, match="max_step_tokens is 0"):
        Engine({}, max_step_tokens=0)


def test_the_plan_is_what_the_runner_sees() -> None:
    """The contract with runners is data: no engine object reaches them."""
    assert ModelPlan.__struct_fields__ == ("model", "spans", "copies", "kept_samples", "forget")
