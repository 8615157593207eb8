"""Each row and token is counted once, and what is not demand is counted apart."""

from __future__ import annotations

import pytest
from branchwise.engine.protocol import EngineUsage, ScoreParams
from branchwise.engine.sched.limits import StepLimits
from branchwise.engine.sched.plan import ModelPlan
from support.checks import Rig, extend_params
from support.plain import PlainRunner


def rows_of(rig: Rig, seq: int) -> int:
    """Rows of `seq` in the next step, which is executed."""
    plan = rig.scheduler.plan()
    assert plan is not None
    rows = sum(len(span.tokens) for model in plan.models for span in model.spans if span.seq == seq)
    rig.finish(plan)
    return rows


@pytest.mark.parametrize(("budget", "chunk", "iterations"), [(512, 480, 4), (256, 224, 7)])
def test_a_long_prompt_fills_what_32_decodes_leave_of_each_step(
    budget: int, chunk: int, iterations: int
) -> None:
    rig = Rig(400, 16, limits=StepLimits(max_rows=budget, max_chunk_rows=budget), check=False)
    rig.runners["policy"] = PlainRunner(400, 16)
    for first in range(32):
        rig.extend(rig.open([first + 1, 1]), extend_params(100))
    rig.step()
    prompt = rig.open([40, *[2] * 1499])
    rig.extend(prompt, extend_params(2))
    chunks = []
    while sum(chunks) < 1500:
        chunks.append(rows_of(rig, prompt))
    assert len(chunks) == iterations
    assert chunks == [chunk] * (iterations - 1) + [1500 - chunk * (iterations - 1)]


@pytest.mark.pins("vllm#49984")
def test_ten_preemptions_a_second_of_2000_tokens_are_20000_recomputed_tokens_a_second() -> None:
    """The work of preemptions stands apart: demand is what it was."""
    block = 2048  # no block of a 2,000-token sequence is full, so the cache finds nothing
    rig = Rig(12, block, limits=StepLimits(max_rows=4096), check=False)
    rig.runners["policy"] = PlainRunner(12, block)
    prompts = [rig.open([first + 1, *[3] * 1998]) for first in range(10)]
    for seq in prompts:
        rig.extend(seq, extend_params(40))
    counters, seconds = rig.scheduler.counters, 3
    for _ in range(12):
        rig.step()
    demand = counters.prefill_rows
    assert demand == 10 * 1999
    for _ in range(seconds):
        before = counters.recomputed_rows
        for seq in prompts:
            holder = rig.scheduler.family.sequences[seq]
            rig.scheduler.relief.preempt(holder)
        lost = sum(rig.scheduler.family.sequences[seq].computed_once for seq in prompts)
        for _ in range(8):
            rig.step()
        assert counters.recomputed_rows - before == lost
        assert lost == pytest.approx(20_000, rel=0.02)
    assert counters.preemptions == seconds * 10
    assert counters.prefill_rows == demand
    assert counters.recompute_hit_tokens == 0


def test_the_rows_scheduled_are_the_sum_of_their_kinds() -> None:
    """On a pool so small that everything happens, failed steps included."""
    rig = Rig(num_blocks=10, block_size=4, max_model_len=32, limits=StepLimits(max_rows=9))
    usage = EngineUsage()

    def fail(plan: ModelPlan) -> None:
        if rig.runner.steps % 7 == 6:
            rig.runner.steps += 1
            raise ConnectionError("injected")

    rig.runner.before_step = fail
    for round_ in range(6):
        root = rig.open([round_ + 1, *range(1, 11)], usage=usage, namespace=f"n{round_ % 2}")
        for seed, child in enumerate(rig.fork(root, range(4))):
            rig.extend(child, extend_params(10 + seed))
        rig.score(root, ScoreParams(logprobs_from=3))
        rig.run()
        for seq in list(rig.scheduler.family.sequences):
            if seq % 3 == 0:
                rig.scheduler.release(seq)
    counters = rig.scheduler.counters
    assert counters.scheduled_rows == counters.rows_by_kind()
    assert counters.failed_rows > 0
    assert counters.recomputed_rows == usage.recomputed_tokens > 0
    assert counters.preemptions == usage.preemptions
    assert counters.parked == usage.parked
    assert counters.preemptions + counters.parked > 0
    assert counters.copied_blocks == usage.copied_blocks > 0
    assert counters.cached_tokens == usage.cached_tokens
    assert counters.decode_rows == usage.decode_tokens
    assert counters.score_rows == usage.score_tokens


@pytest.mark.pins("vllm#5051", "vllm#7346")
def test_a_hit_after_a_preemption_is_not_a_cache_hit() -> None:
    rig = Rig(block_size=4)
    usage = EngineUsage()
    seq = rig.open(list(range(1, 14)), usage=usage)
    rig.extend_now(seq, extend_params(1))
    rig.scheduler.park(seq)
    rig.extend_now(seq, extend_params(1))
    counters = rig.scheduler.counters
    assert (counters.recompute_hit_tokens, counters.cached_tokens) == (12, 0)
    rig.extend_now(rig.open(list(range(1, 14))), extend_params(1))
    assert (counters.recompute_hit_tokens, counters.cached_tokens) == (12, 12)
    assert usage.cached_tokens == 0  # the other's hits are told to the other
