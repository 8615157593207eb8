"""Who owns which block: reference counts, the free list, and the cached blocks in the order of eviction."""

import enum
import heapq
from collections.abc import Callable, Iterable

from ..sched.plan import TRASH_BLOCK

_DEAD = 1 << 62
"""Stamps of dead blocks are this much older."""


class BlockState(enum.Enum):
    """FREE: nothing of value in it. CACHED: published, held by nobody. OWNED: held at least once."""

    FREE = enum.auto()
    CACHED = enum.auto()
    OWNED = enum.auto()


class BlockPool:
    """Blocks `1 .. num_blocks - 1`; block 0 is the trash block and is never allocated.

    Legal moves: free -> owned (`allocate`), cached -> owned (`adopt`), owned -> cached or free (`drop`),
    cached -> free (eviction, inside `allocate`). Anything else asserts. A block is writable while it is held
    once and not published.

    A *pinned* block is not evicted; what leads to it is pinned too, so that the count of `available` blocks
    holds. Blocks dropped as *dead* are evicted before all others.

    `filled[b]` is the number of positions whose KV stands in block b. A published block has a published
    parent (or none), and a parent is evicted only after its children.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        assert num_blocks >= 2, num_blocks
        assert block_size >= 1, block_size
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.filled = [0] * num_blocks
        self.evictions = 0
        self.on_evict: Callable[[int], None] = lambda block: None
        self._refs = [0] * num_blocks
        self._published = bytearray(num_blocks)
        self._parent = [TRASH_BLOCK] * num_blocks
        self._children = [0] * num_blocks
        self._free = list(range(num_blocks - 1, TRASH_BLOCK, -1))
        self._cached = 0
        self._clock = 0
        self._stamps = [0] * num_blocks
        self._leaves: list[tuple[int, int]] = []
        self._pinned = bytearray(num_blocks)
        self._pinned_cached = 0

    @property
    def total(self) -> int:
        """Blocks that can be allocated at all."""
        return self.num_blocks - 1

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return self._cached

    @property
    def owned(self) -> int:
        return self.total - self.free - self.cached

    @property
    def available(self) -> int:
        """Blocks that `allocate` can still hand out, evicting what is cached."""
        return len(self._free) + self._cached - self._pinned_cached

    @property
    def pinned_cached(self) -> int:
        """Cached blocks that are kept from eviction."""
        return self._pinned_cached

    def pinned(self, block: int) -> bool:
        return bool(self._pinned[block])

    def refs(self, block: int) -> int:
        return self._refs[block]

    def published(self, block: int) -> bool:
        return bool(self._published[block])

    def writable(self, block: int) -> bool:
        return self._refs[block] == 1 and not self._published[block]

    def parent(self, block: int) -> int:
        """The published block before a published one; 0 for a first block."""
        return self._parent[block]

    def children(self, block: int) -> int:
        """Published blocks that follow this one."""
        return self._children[block]

    def state(self, block: int) -> BlockState:
        if self._refs[block]:
            return BlockState.OWNED
        return BlockState.CACHED if self._published[block] else BlockState.FREE

    def allocate(self) -> int:
        """A block held once, unpublished and empty. The caller has checked `available`."""
        if not self._free:
            self._evict()
        block = self._free.pop()
        assert self._refs[block] == 0, block
        self._refs[block] = 1
        self.filled[block] = 0
        return block

    def share(self, block: int) -> None:
        """One holder more of an owned block."""
        assert self._refs[block] > 0, block
        self._refs[block] += 1

    def adopt(self, block: int) -> None:
        """Hold a published block, cached or owned."""
        assert self._published[block], block
        if self._refs[block] == 0:
            self._cached -= 1
            self._pinned_cached -= self._pinned[block]
        self._refs[block] += 1

    def drop(self, block: int, *, dead: bool = False) -> None:
        """One holder less; the last one leaves the block cached if it is published, else free."""
        refs = self._refs[block] - 1
        assert refs >= 0, block
        self._refs[block] = refs
        if refs:
            return
        if not self._published[block]:
            self.filled[block] = 0
            self._free.append(block)
            return
        self._cached += 1
        self._pinned_cached += self._pinned[block]
        self._clock += 1
        self._stamps[block] = self._clock - _DEAD if dead else self._clock
        if self._children[block] == 0:
            self._push_leaf(block)

    def drop_all(self, blocks: Iterable[int], *, dead: bool = False) -> None:
        """Drop a table's blocks, its tail first, so that leaves are older than their parents."""
        for block in reversed(tuple(blocks)):
            self.drop(block, dead=dead)

    def pin(self, block: int) -> None:
        """Keep a published block, whose parent is pinned or none, from eviction."""
        assert self._published[block], block
        assert self._parent[block] == TRASH_BLOCK or self._pinned[self._parent[block]], block
        if not self._pinned[block]:
            self._pinned[block] = 1
            self._pinned_cached += self._refs[block] == 0

    def unpin(self, block: int) -> None:
        """Let a pinned block, none of whose children is pinned, be evicted in its turn."""
        assert self._pinned[block], block
        self._pinned[block] = 0
        if self._refs[block] == 0:
            self._pinned_cached -= 1
            if self._children[block] == 0:
                self._push_leaf(block)

    def publish(self, block: int, parent: int) -> None:
        """The full block may be found from now on; `parent` is the published block before it (0: none)."""
        assert self._refs[block] > 0, block
        assert not self._published[block], block
        assert self.filled[block] == self.block_size, block
        assert parent == TRASH_BLOCK or self._published[parent], parent
        self._published[block] = 1
        self._parent[block] = parent
        if parent != TRASH_BLOCK:
            self._children[parent] += 1

    def _evict(self) -> None:
        """Cached -> free for the leaf that was used longest ago."""
        block = self._pop_leaf()
        parent = self._parent[block]
        self._published[block] = 0
        self._parent[block] = TRASH_BLOCK
        self._cached -= 1
        self.evictions += 1
        self.filled[block] = 0
        self._free.append(block)
        self.on_evict(block)
        if parent != TRASH_BLOCK:
            self._children[parent] -= 1
            if self._children[parent] == 0 and self._refs[parent] == 0:
                self._push_leaf(parent)

    def _push_leaf(self, block: int) -> None:
        heapq.heappush(self._leaves, (self._stamps[block], block))
        if len(self._leaves) > 4 * self.num_blocks:
            self._leaves = [entry for entry in self._leaves if self._is_leaf(*entry)]
            heapq.heapify(self._leaves)

    def _pop_leaf(self) -> int:
        while self._leaves:
            stamp, block = heapq.heappop(self._leaves)
            if self._is_leaf(stamp, block):
                return block
        raise AssertionError("no cached block can be evicted: the caller did not check `available`")

    def _is_leaf(self, stamp: int, block: int) -> bool:
        """Whether a heap entry still speaks of a cached leaf; entries of blocks that were revived are left to
        rot.
        """
        return (
            self._stamps[block] == stamp
            and self._refs[block] == 0
            and self._published[block] == 1
            and self._children[block] == 0
            and not self._pinned[block]
        )
