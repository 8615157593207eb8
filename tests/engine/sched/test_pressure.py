"""A full pool: evict, park, preempt, resume; outputs stay what they are and nothing is stuck."""

import pytest
from branchwise.engine.protocol import EngineUsage, ScoreParams, SeqId
from branchwise.engine.sched.plan import StepPlan
from branchwise.engine.sched.scheduler import StepLimits
from branchwise.engine.text.stop import Stop
from support.checks import Rig, extend_params
from support.oracle import NaiveEngine, oracle_info


def check_outputs(rig: Rig, prompt: list[int], requests: dict[int, int], tokens: int, max_len: int) -> None:
    for seed, request in requests.items():
        expected = NaiveEngine.extend(prompt, seed, extend_params(tokens), max_len)
        got = rig.extension(request)
        assert (list(got.tokens), list(got.logprobs), got.stop) == expected


@pytest.mark.pins("vllm#25538")
@pytest.mark.parametrize("blocks", [9, 11, 14, 20])
def test_a_best_of_n_that_outgrows_the_pool_ends_with_the_same_tokens(blocks: int) -> None:
    rig = Rig(num_blocks=blocks, block_size=4, max_model_len=32)
    usage = EngineUsage()
    prompt = list(range(1, 11))
    root = rig.open(prompt, usage=usage)
    children = dict(zip(range(20, 28), rig.fork(root, range(20, 28)), strict=True))
    rig.scheduler.release(root)
    requests = {seed: rig.extend(child, extend_params(18)) for seed, child in children.items()}
    rig.run(*requests.values())
    check_outputs(rig, prompt, requests, 18, 32)
    assert usage.preemptions + usage.parked > 0
    # no thrash: each preemption has bought more decoded rows than it cost recomputed ones
    assert usage.decode_tokens == 8 * 17
    assert usage.recomputed_tokens < 4 * usage.decode_tokens


def test_siblings_that_share_every_block_do_not_lock_the_pool() -> None:
    """Found by the state machine: preempting any one of them regains nothing."""
    for count in (3, 4):
        limits = StepLimits(max_rows=1, max_chunk_rows=1, max_kept_rows=0)
        rig = Rig(num_blocks=9, block_size=4, max_model_len=30, limits=limits, digest_bytes=1)
        prompt = list(range(1, 14))
        root = rig.open(prompt)
        seeds = range(40, 40 + count)
        children = rig.fork(root, seeds)
        rig.scheduler.release(root)
        requests = {s: rig.extend(c, extend_params(17)) for s, c in zip(seeds, children, strict=True)}
        rig.run(*requests.values())
        check_outputs(rig, prompt, requests, 17, 30)


def test_cached_blocks_go_before_idle_branches_and_those_before_running_ones() -> None:
    rig = Rig(num_blocks=13, block_size=4, max_model_len=48)
    usage = EngineUsage()
    gone = rig.open([1] * 12, usage=usage)
    rig.extend_now(gone, extend_params(1))
    rig.scheduler.release(gone)  # three cached blocks
    idle = rig.open([2] * 12, usage=usage)
    rig.extend_now(idle, extend_params(1))
    assert rig.pool.cached == 3
    busy = rig.open([3] * 12, usage=usage)
    rig.extend_now(busy, extend_params(16))
    assert rig.pool.evictions > 0
    assert usage.parked == 0
    rig.extend_now(busy, extend_params(12))
    assert usage.parked == 1
    assert rig.blocks(idle) == ()
    assert usage.preemptions == 0
    extension = rig.extend_now(idle, extend_params(3))
    assert extension.generated == 3
    assert usage.recomputed_tokens > 0


def test_idle_branches_are_parked_in_the_order_of_their_last_use() -> None:
    rig = Rig(num_blocks=13, block_size=4, max_model_len=48)
    old, new = rig.open([1] * 13), rig.open([2] * 13)
    rig.extend_now(old, extend_params(1))
    rig.extend_now(new, extend_params(1))
    rig.extend_now(old, extend_params(1))
    rig.extend_now(rig.open([3] * 15), extend_params(4))
    assert rig.blocks(new) == ()
    assert rig.blocks(old) != ()


@pytest.mark.pins("vllm#54644")
def test_the_victim_is_the_cheapest_to_recompute_per_block() -> None:
    """Who shares most of its blocks is recomputed for almost nothing; among equals the last in order goes."""
    rig = Rig(num_blocks=30, block_size=4, max_model_len=48)
    root = rig.open(list(range(1, 18)))
    first, last = rig.fork(root, [5, 6])
    rig.scheduler.release(root)
    own = rig.open([30] * 17)
    for order, seq in enumerate((first, own, last)):
        rig.extend(seq, extend_params(14, order=(order,)))
    for _ in range(3):
        rig.step()
    victim = rig.scheduler.relief.preempt_one(rig.memory, set(), 3, fresh=False)
    assert victim is not None
    assert victim.id == last
    rig.run()


@pytest.mark.pins("vllm#25538")
def test_a_holder_just_resumed_is_left_alone() -> None:
    rig = Rig(num_blocks=12, block_size=4, max_model_len=40)
    usage = EngineUsage()
    requests = [
        rig.extend(rig.open([token] * 9, seed=token, usage=usage), extend_params(24, order=(token,)))
        for token in range(1, 5)
    ]
    rig.run(*requests)
    steps = rig.runner.steps
    assert usage.preemptions < steps / 8
    for token, request in enumerate(requests, start=1):
        expected = NaiveEngine.extend([token] * 9, token, extend_params(24), 40)[0]
        assert list(rig.extension(request).tokens) == expected


@pytest.mark.pins("vllm tests/v1/core/test_priority_preemption_bug.py")
def test_each_request_is_planned_at_most_once_per_step_whoever_is_preempted() -> None:
    rig = Rig(num_blocks=12, block_size=4, max_model_len=40)
    requests = [
        rig.extend(rig.open([token] * 9, seed=token), extend_params(20, order=(9 - token,)))
        for token in range(1, 7)
    ]
    running_without_rows = 0
    while (plan := rig.scheduler.plan()) is not None:
        seqs = planned(plan)
        assert len(seqs) == len(set(seqs))
        running_without_rows += len(rig.scheduler.board.running) - len(seqs)
        rig.finish(plan)
    assert all(rig.extension(request).generated == 20 for request in requests)
    assert running_without_rows < rig.runner.steps


def planned(plan: StepPlan) -> list[SeqId]:
    spans = [span.seq for model in plan.models for span in model.spans]
    return spans + [kept.sample.seq for model in plan.models for kept in model.kept_samples]


def test_counters_count_each_row_once() -> None:
    rig = Rig(num_blocks=10, block_size=4, max_model_len=32)
    usage = EngineUsage()
    root = rig.open(list(range(1, 12)), usage=usage)
    rig.run(*[rig.extend(child, extend_params(16)) for child in rig.fork(root, range(6))])
    rows = usage.prefill_tokens + usage.decode_tokens + usage.score_tokens + usage.recomputed_tokens
    assert rows == rig.runner.rows
    assert usage.prefill_tokens == 11
    assert usage.decode_tokens == 6 * 15
    assert usage.recomputed_tokens > 0


def test_a_parked_branch_finds_its_blocks_in_the_cache() -> None:
    rig = Rig(block_size=4)
    usage = EngineUsage()
    seq = rig.open(list(range(1, 14)), usage=usage)
    rig.extend_now(seq, extend_params(1))
    rig.scheduler.park(seq)
    rig.scheduler.check()
    assert rig.pool.owned == 0
    assert usage.kv_tokens == 0
    rows = rig.runner.rows
    rig.extend_now(seq, extend_params(1))
    assert rig.runner.rows == rows + 2  # the position behind the last whole block, and the new one
    assert usage.recomputed_tokens == 1
    assert usage.cached_tokens == 0  # it was this branch that had computed them


def test_parking_one_member_does_not_take_the_others_blocks() -> None:
    rig = Rig(block_size=4)
    root = rig.open(list(range(1, 10)))
    first, second = rig.fork(root, [1, 2])
    rig.extend_now(first, extend_params(1))
    rig.scheduler.park(second)
    assert rig.scheduler.family.sequences[root].holder.computed == 9
    rig.scheduler.park(root)
    assert rig.scheduler.family.sequences[root].holder.computed == 0


def test_the_context_ends_an_extension() -> None:
    rig = Rig(block_size=4, max_model_len=14)
    seq = rig.open(list(range(1, 11)))
    extension = rig.extend_now(seq, extend_params(50))
    assert (extension.stop, extension.generated) == (Stop.CONTEXT, 4)
    assert rig.extend_now(seq, extend_params(50)).stop is Stop.CONTEXT


def test_a_sequence_can_fill_the_whole_pool() -> None:
    rig = Rig(num_blocks=5, block_size=4, max_model_len=100)
    root = rig.open(list(range(1, 11)))
    [child] = rig.fork(root, [1])
    extension = rig.extend_now(child, extend_params(50))
    assert (extension.stop, len(rig.tokens(child))) == (Stop.CONTEXT, 16)


def test_alone_and_a_block_short_the_shared_tail_is_computed_again() -> None:
    """The tail of the whole pool is published, so a write needs a copy that there is no block for."""
    rig = Rig(num_blocks=5, block_size=4, infos=[oracle_info("prm", head="reward")])
    usage = EngineUsage()
    seq = rig.open(list(range(1, 17)), model="prm", usage=usage)
    rig.score_now(seq, ScoreParams(reward_at=(15,)))
    assert rig.pool.available == 0
    rig.scheduler.truncate(seq, 14)
    rig.scheduler.append(seq, [40])
    scores = rig.score_now(seq, ScoreParams(reward_at=(14,)))
    assert list(scores.rewards) == NaiveEngine.rewards(rig.tokens(seq), (14,))
    assert usage.recomputed_tokens == 2
    assert usage.copied_blocks == 0
