"""Prefixes that stay in the cache for a time, whoever holds their blocks and whether anybody does."""

from collections import Counter

from ..errors import CapacityError
from ..protocol import SeqId
from ..sched.plan import TRASH_BLOCK
from .pool import BlockPool
from .prefix import BlockHash, PrefixIndex

PINNED_SHARE = 0.5
"""Part of a pool that pins may keep at most: the rest is for those that run."""


class Pins:
    """Pins by owner: the hashes of a prefix's whole blocks, from the first on, and the time they end, in
    seconds of the engine's clock.

    A block is pinned in the pool while a pin names it and its parent is pinned: also one that is published
    only after the pin was made.
    """

    def __init__(self, pool: BlockPool, index: PrefixIndex) -> None:
        self._pool = pool
        self._index = index
        self._owners: dict[SeqId, tuple[float, tuple[BlockHash, ...]]] = {}
        self._named: Counter[BlockHash] = Counter()
        index.on_publish = self._published
        index.on_hide = self._hidden

    def __len__(self) -> int:
        return len(self._owners)

    def pin(self, owner: SeqId, chain: tuple[BlockHash, ...], until: float) -> None:
        """Keep the blocks of `chain` until `until`, in place of what `owner` pinned before.

        Raises `CapacityError` where all pins together would keep more than half of the pool.
        """
        mine = set(self._owners[owner][1]) if owner in self._owners else set()
        others = {digest for digest, count in self._named.items() if count > (digest in mine)}
        kept, limit = len(others.union(chain)), int(PINNED_SHARE * self._pool.total)
        if kept > limit:
            raise CapacityError(
                f"pinned prefixes would keep {kept} blocks of {self._pool.block_size} positions; "
                f"the most are {limit} of the {self._pool.total} of this model"
            )
        self.unpin(owner)
        self._owners[owner] = (until, chain)
        for digest in chain:
            self._named[digest] += 1
            block = self._index.at(digest)
            if block != TRASH_BLOCK:
                self._published(block, digest)

    def unpin(self, owner: SeqId) -> None:
        """Idempotent."""
        _, chain = self._owners.pop(owner, (0.0, ()))
        for digest in reversed(chain):
            self._named[digest] -= 1
            if self._named[digest]:
                continue
            del self._named[digest]
            block = self._index.at(digest)
            if block != TRASH_BLOCK and self._pool.pinned(block):
                self._pool.unpin(block)

    def expire(self, now: float) -> None:
        """End the pins whose time is over."""
        for owner in [owner for owner, (until, _) in self._owners.items() if until <= now]:
            self.unpin(owner)

    def give_up_one(self) -> bool:
        """The last resort of a request that fits nowhere else: the pin that would end first ends now."""
        if not self._owners:
            return False
        self.unpin(min(self._owners, key=lambda owner: (self._owners[owner][0], owner)))
        return True

    def _published(self, block: int, digest: BlockHash) -> None:
        if digest not in self._named:
            return
        parent = self._pool.parent(block)
        if parent == TRASH_BLOCK or self._pool.pinned(parent):
            self._pool.pin(block)

    def _hidden(self, digest: BlockHash) -> None:
        """Nobody can find the block any more: pins that name it end."""
        if digest in self._named:
            for owner in [owner for owner, (_, chain) in self._owners.items() if digest in chain]:
                self.unpin(owner)
