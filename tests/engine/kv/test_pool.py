"""The block pool: legal moves only, leaf-first eviction by last use, and counts that add up."""

import pytest
from branchwise.engine.kv.pool import BlockPool, BlockState
from hypothesis import given
from hypothesis import strategies as st


def full_block(pool: BlockPool, parent: int = 0) -> int:
    """An owned and published block."""
    block = pool.allocate()
    pool.filled[block] = pool.block_size
    pool.publish(block, parent)
    return block


def cached_chain(pool: BlockPool, length: int) -> list[int]:
    blocks: list[int] = []
    for _ in range(length):
        blocks.append(full_block(pool, blocks[-1] if blocks else 0))
    pool.drop_all(blocks)
    return blocks


def test_the_trash_block_is_never_allocated() -> None:
    pool = BlockPool(5, 4)
    assert 0 not in {pool.allocate() for _ in range(4)}
    assert pool.available == 0


def test_a_block_goes_through_its_states() -> None:
    pool = BlockPool(3, 4)
    block = full_block(pool)
    assert pool.state(block) is BlockState.OWNED
    assert not pool.writable(block)
    pool.drop(block)
    assert pool.state(block) is BlockState.CACHED
    pool.adopt(block)
    pool.adopt(block)
    assert pool.refs(block) == 2
    pool.drop(block)
    pool.drop(block)
    unpublished = pool.allocate()
    assert pool.writable(unpublished)
    pool.drop(unpublished)
    assert pool.state(unpublished) is BlockState.FREE


@pytest.mark.parametrize(
    "move",
    [
        lambda pool, block: pool.drop(block),
        lambda pool, block: pool.share(block),
        lambda pool, block: pool.adopt(block),
        lambda pool, block: pool.publish(block, 0),
    ],
)
def test_moves_of_a_free_block_assert(move: object) -> None:
    pool = BlockPool(3, 4)
    block = pool.allocate()
    pool.drop(block)
    with pytest.raises(AssertionError):
        move(pool, block)  # pyright: ignore[reportCallIssue]


def test_publishing_asserts_on_a_block_that_is_not_full_or_published_or_orphaned() -> None:
    pool = BlockPool(4, 4)
    block, other = pool.allocate(), pool.allocate()
    with pytest.raises(AssertionError):
        pool.publish(block, 0)
    pool.filled[block] = 4
    with pytest.raises(AssertionError):
        pool.publish(block, other)
    pool.publish(block, 0)
    with pytest.raises(AssertionError):
        pool.publish(block, 0)


def test_allocating_from_an_exhausted_pool_asserts() -> None:
    pool = BlockPool(2, 4)
    pool.allocate()
    with pytest.raises(AssertionError):
        pool.allocate()


@pytest.mark.pins("llm-d#704")
def test_eviction_takes_leaves_before_parents_and_old_before_new() -> None:
    pool = BlockPool(7, 4)
    evicted: list[int] = []
    pool.on_evict = evicted.append
    old, new = cached_chain(pool, 3), cached_chain(pool, 3)
    for block in old:
        pool.adopt(block)
    pool.drop_all(old)  # used again: now the younger chain was used longest ago
    for _ in range(6):
        pool.allocate()
    assert evicted == [*reversed(new), *reversed(old)]


def test_a_parent_with_a_cached_child_outlives_it_even_if_older() -> None:
    pool = BlockPool(4, 4)
    parent = full_block(pool)
    child = full_block(pool, parent)
    pool.drop(parent)  # the parent's last use is before the child's
    pool.drop(child)
    evicted: list[int] = []
    pool.on_evict = evicted.append
    pool.allocate()
    assert evicted == []  # one block was free
    pool.allocate()
    pool.allocate()
    assert evicted == [child, parent]


@given(st.lists(st.integers(0, 5), max_size=200))
def test_counts_add_up_after_any_moves(moves: list[int]) -> None:
    pool = BlockPool(6, 4)
    held: list[int] = []
    cached: set[int] = set()
    pool.on_evict = cached.discard
    for move in moves:
        if move <= 1 and pool.available:
            block = pool.allocate() if move == 0 else full_block(pool)
            held.append(block)
        elif move == 2 and held:
            pool.share(held[0])
            held.append(held[0])
        elif move in (3, 4) and held:
            block = held.pop(0 if move == 3 else -1)
            pool.drop(block)
            if pool.state(block) is BlockState.CACHED:
                cached.add(block)
        elif move == 5 and cached:
            block = cached.pop()
            pool.adopt(block)
            held.append(block)
        assert pool.free + pool.cached + pool.owned == pool.total
        assert pool.cached == len(cached)
        assert pool.owned == len(set(held))
        assert all(pool.refs(block) == held.count(block) for block in range(1, 6))


def test_stale_entries_of_the_eviction_heap_are_dropped() -> None:
    pool = BlockPool(3, 4)
    block = full_block(pool)
    for _ in range(100):
        pool.drop(block)
        pool.adopt(block)
    pool.drop(block)
    assert len(pool._leaves) <= 4 * pool.num_blocks + 1
    pool.allocate()
    pool.allocate()
    assert pool.evictions == 1
