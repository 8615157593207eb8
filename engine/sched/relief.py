"""A full pool: who gives blocks back, in the order evict (inside the pool), park idle, preempt the
cheapest.
"""

from collections.abc import Collection, Iterable

from .board import Board
from .family import Family
from .kept import KeptRows
from .memory import ModelMemory
from .sequence import Sequence

FRESH_STEPS = 16
"""A holder that was resumed less than this many steps ago is not preempted again: it first has to get
something done.
"""


class Relief:
    """Takes blocks from holders; never from one in `spared`. All of them may be recomputed."""

    def __init__(self, family: Family, board: Board, kept: KeptRows) -> None:
        self._family = family
        self._board = board
        self._kept = kept
        self.parkings = 0
        self.preemptions = 0

    def park_one(self, memory: ModelMemory, spared: Collection[Sequence]) -> bool:
        """Park the idle holder that was used longest ago, one that regains blocks before one that regains
        none.
        """
        busy = self._busy()
        idle = [holder for holder in self._holders(memory) if holder.id not in busy and holder not in spared]
        if not idle:
            return False
        victim = min(idle, key=lambda holder: (not self._regained(holder), holder.last_used, holder.id))
        self.park(victim)
        return True

    def park(self, holder: Sequence) -> None:
        """Give the blocks of an idle holder back to the cache."""
        self.parkings += 1
        holder.account.usage.parked += 1
        self._give_up(holder)

    def preempt_one(
        self, memory: ModelMemory, spared: Collection[Sequence], step: int, *, fresh: bool
    ) -> Sequence | None:
        """Preempt the holder with the fewest positions to recompute per block regained; ties go to the last
        served.

        `fresh` is the last resort: it allows those that were just resumed, and, where all blocks are shared,
        those that regain none by themselves.
        """
        latest = self._latest_keys()
        others = [holder for holder in self._holders(memory) if holder not in spared]
        victims = [
            holder
            for holder in others
            if self._regained(holder)
            and (fresh or step - holder.resumed_at >= FRESH_STEPS or holder.resumed_at < 0)
        ]
        if not victims and fresh:
            victims = others
        if not victims:
            return None
        latest_first = sorted(victims, key=lambda holder: latest.get(holder.id, ((), 0)), reverse=True)
        victim = min(latest_first, key=self._cost_per_block)
        self.preempt(victim)
        return victim

    def preempt(self, holder: Sequence) -> None:
        """Take all blocks of a holder; its requests wait until it is resumed."""
        self.preemptions += 1
        holder.account.usage.preemptions += 1
        for request in self._board.active():
            if request.seq.holder is holder:
                self._board.preempt(request)
        self._give_up(holder)

    def _give_up(self, holder: Sequence) -> None:
        holder.memory.drop_blocks(holder)
        if holder.logits_kept:
            self._kept.forget(holder)

    def _holders(self, memory: ModelMemory) -> Iterable[Sequence]:
        return (s for s in self._family.sequences.values() if s.table.blocks and s.memory is memory)

    def _busy(self) -> set[int]:
        """Holders that a request waits or runs on."""
        return {request.seq.holder.id for request in self._board.active()}

    def _latest_keys(self) -> dict[int, tuple[tuple[int, ...], int]]:
        latest: dict[int, tuple[tuple[int, ...], int]] = {}
        for request in self._board.active():
            holder = request.seq.holder.id
            latest[holder] = max(latest.get(holder, request.key), request.key)
        return latest

    def _regained(self, holder: Sequence) -> int:
        """Blocks that become available when the holder gives up its own."""
        return sum(holder.memory.pool.refs(block) == 1 for block in holder.table.blocks)

    def _cost_per_block(self, holder: Sequence) -> float:
        """Positions to compute again per block regained: what others hold is found again for nothing."""
        pool = holder.memory.pool
        own = [block for block in holder.table.blocks if not (pool.published(block) and pool.refs(block) > 1)]
        return sum(pool.filled[block] for block in own) / max(self._regained(holder), 1)
