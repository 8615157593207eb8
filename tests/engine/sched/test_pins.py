"""Prefixes that are kept, and branches that nobody will want again."""

from __future__ import annotations

import pytest
from branchwise.engine.errors import CapacityError
from branchwise.engine.protocol import EngineUsage, Pinned, SeqId, Unlimited
from branchwise.engine.sched.plan import ModelResult
from support.checks import Rig, extend_params
from support.machine import spoil
from support.oracle_engine import OracleEngine

PREFIX = list(range(1, 14))
METER = Unlimited()


def pin(rig: Rig, seq: SeqId, until: float) -> Pinned:
    request = rig.new_id()
    rig.scheduler.pin(request, seq, until)
    rig.collect()
    outcome = rig.outcomes[request]
    if outcome.error is not None:
        raise outcome.error
    assert isinstance(outcome.value, Pinned)
    return outcome.value


def computed(rig: Rig, tokens: list[int], namespace: str = "") -> SeqId:
    seq = rig.open(tokens, namespace=namespace)
    rig.extend_now(seq, extend_params(1))
    return seq


def flood(rig: Rig, times: int = 6) -> None:
    """Evict whatever can be evicted."""
    for first in range(times):
        rig.scheduler.release(computed(rig, [first + 20, *[3] * 40]))


def hits(rig: Rig, tokens: list[int], namespace: str = "") -> int:
    usage = EngineUsage()
    seq = rig.open(tokens, usage=usage, namespace=namespace)
    rig.extend_now(seq, extend_params(1))
    rig.scheduler.release(seq)
    return usage.cached_tokens


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.pins("vllm#23083", "sglang#18941", "sglang#21045")
def test_a_pinned_prefix_outlives_its_sequence_until_its_time_is_over(when: str) -> None:
    rig = Rig(num_blocks=20, block_size=4)
    seq = rig.open(PREFIX)
    if when == "before":  # nothing is computed yet: what is published later is kept too
        assert pin(rig, seq, until=10.0) == Pinned(positions=12)
    rig.extend_now(seq, extend_params(1))
    if when == "after":
        assert pin(rig, seq, until=10.0) == Pinned(positions=12)
    rig.scheduler.release(seq)
    assert rig.pool.pinned_cached == 3
    flood(rig)
    assert hits(rig, PREFIX) == 12
    rig.scheduler.expire_pins(9.9)
    flood(rig)
    assert hits(rig, PREFIX) == 12
    rig.scheduler.expire_pins(10.0)
    assert rig.pool.pinned_cached == 0
    flood(rig)
    assert hits(rig, PREFIX) == 0


def test_a_pin_covers_the_sequence_as_it_stood_whatever_becomes_of_it() -> None:
    """What is generated or appended behind it is not kept; what is cut off it, and written otherwise, is."""
    rig = Rig(num_blocks=24, block_size=4)
    seq = rig.open(PREFIX)
    assert pin(rig, seq, until=10.0) == Pinned(positions=12)
    rig.extend_now(seq, extend_params(9))
    longer = rig.tokens(seq)
    rig.scheduler.truncate(seq, 6)
    rig.scheduler.append(seq, [40] * 8)
    rig.extend_now(seq, extend_params(1))
    other = rig.tokens(seq)
    rig.scheduler.release(seq)
    assert rig.pool.pinned_cached == 3
    flood(rig)
    assert hits(rig, longer) == 12
    assert hits(rig, other) == 4  # the block that both begin with
    again = computed(rig, longer)
    assert pin(rig, again, until=10.0) == Pinned(positions=20)
    rig.scheduler.release(again)
    flood(rig)
    assert hits(rig, longer) == 20
    rig.scheduler.unpin(again)
    rig.scheduler.expire_pins(10.0)
    assert rig.pool.pinned_cached == 0


def test_a_pin_is_of_its_namespace_only() -> None:
    rig = Rig(num_blocks=30, block_size=4)
    pin(rig, computed(rig, PREFIX, "a"), until=10.0)
    assert hits(rig, PREFIX, "b") == 0
    assert hits(rig, PREFIX, "a") == 12


def test_shared_pins_count_once_and_the_last_one_lets_go() -> None:
    rig = Rig(num_blocks=20, block_size=4)
    first = computed(rig, PREFIX)
    second = computed(rig, [*PREFIX, 1, 2, 3])
    for _ in range(3):
        pin(rig, first, until=10.0)
        pin(rig, second, until=20.0)
    rig.scheduler.release(first)
    rig.scheduler.release(second)
    assert rig.pool.pinned_cached == 4
    rig.scheduler.expire_pins(15.0)
    assert rig.pool.pinned_cached == 4
    rig.scheduler.unpin(second)
    rig.scheduler.unpin(second)
    assert rig.pool.pinned_cached == 0


def test_pins_keep_at_most_half_of_the_pool_and_the_error_says_the_numbers() -> None:
    rig = Rig(num_blocks=13, block_size=4)
    pin(rig, computed(rig, PREFIX), until=10.0)
    message = "would keep 7 blocks of 4 positions; the most are 6 of the 12 of this model"
    with pytest.raises(CapacityError, match=message):
        pin(rig, rig.open([9] * 17), until=10.0)
    assert len(rig.memory.pins) == 1


def test_a_pin_gives_way_before_a_request_would_fail() -> None:
    rig = Rig(num_blocks=9, block_size=4)
    seq = computed(rig, PREFIX)
    pin(rig, seq, until=10.0)
    rig.scheduler.release(seq)
    extension = rig.extend_now(rig.open([9] * 20), extend_params(12))
    assert extension.generated == 12
    assert len(rig.memory.pins) == 0


def test_kv_that_is_not_sound_is_not_kept() -> None:
    rig = Rig(num_blocks=20, block_size=4)
    seq = computed(rig, PREFIX)
    pin(rig, seq, until=10.0)
    rig.runner.mangle = lambda result: spoil(result, 0)
    rig.run(rig.extend(seq, extend_params(2)))

    def sound(result: ModelResult) -> ModelResult:
        return result

    rig.runner.mangle = sound
    assert len(rig.memory.pins) == 0
    assert hits(rig, PREFIX) == 0


@pytest.mark.parametrize("pruned", [True, False])
def test_what_a_pruned_branch_added_is_evicted_first(pruned: bool) -> None:
    """The older branch is kept, although it was used longer ago; the common prefix is not dead."""
    rig = Rig(num_blocks=16, block_size=4)
    root = rig.open(PREFIX)
    kept, dead = rig.fork(root, [1, 2])
    for child in (kept, dead):
        rig.extend_now(child, extend_params(8))
    alive, tail = rig.tokens(kept), rig.tokens(dead)
    rig.scheduler.release(root)
    rig.scheduler.release(kept)
    rig.scheduler.release(dead, pruned=pruned)
    taken = rig.open([40] * (4 * (rig.pool.free + 2)))  # two blocks have to go
    rig.extend_now(taken, extend_params(1))
    rig.scheduler.release(taken)
    assert rig.pool.evictions == 2
    first, second = (alive, tail) if pruned else (tail, alive)
    assert hits(rig, first) == 20
    assert hits(rig, second) == 12


@pytest.mark.anyio
async def test_the_engine_pins_and_forgets_by_the_clock() -> None:
    rig = OracleEngine(num_blocks=20)
    async with rig.engine as engine:
        seq = engine.open(PREFIX, seed=1)
        await engine.extend(seq, extend_params(1), METER)
        assert await engine.pin(seq, ttl_s=0.01) == Pinned(positions=12)
        engine.release(seq)
        with pytest.raises(CapacityError):
            await engine.pin(engine.open([1] * 60, seed=1), ttl_s=1.0)
        other = engine.open([5, 6], seed=1)
        while len(engine.scheduler.memories["policy"].pins):
            await engine.extend(other, extend_params(1), METER)
        assert rig.pool.pinned_cached == 0
