"""A full pool: who gives blocks back, in the order evict (inside the pool), park idle, preempt the
cheapest.
"""

from collections.abc import Collection, Iterable

from .board import Board
from .counters import Counters
from .family import Family
from .kept import KeptRows
from .memory import ModelMemory
from .observer import Observer
from .parts import BlockParts, missing_blocks
from .request import Key, Request, RequestState
from .sequence import Sequence

FRESH_STEPS = 16
"""A holder that was resumed less than this many steps ago is not preempted again: it first has to get
something done.
"""

_NO_KEY: Key = (-(1 << 62), (), 0)


class Relief:
    """Takes blocks from holders; never from one in `spared`. All of them may be recomputed."""

    def __init__(
        self, family: Family, board: Board, kept: KeptRows, counters: Counters, observer: Observer
    ) -> None:
        self._family = family
        self._board = board
        self._kept = kept
        self._counters = counters
        self._observer = observer
        self._parts = BlockParts(family, board)
        self._starving: list[Request] = []

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
        self._counters.parked += 1
        holder.account.usage.parked += 1
        self._give_up(holder)
        self._observer.parked(holder)

    def preempt_one(
        self,
        memory: ModelMemory,
        spared: Collection[Sequence],
        step: int,
        *,
        fresh: bool,
        tenants: Collection[str] | None = None,
    ) -> Sequence | None:
        """Preempt the holder with the fewest positions to recompute per block regained; ties go to the last
        served.

        `fresh` is the last resort: it allows those that were just resumed, and, where all blocks are shared,
        those that regain none by themselves. Only of `tenants`, if they are given; of several, those go first
        that hold more than their part.
        """
        latest = self._latest_keys()
        others = [
            holder
            for holder in self._holders(memory)
            if holder not in spared and (tenants is None or holder.tenant in tenants)
        ]
        victims = [
            holder
            for holder in others
            if self._regained(holder) and (fresh or holder.resumed_at < 0 or _has_gained(holder, step))
        ]
        if not victims and fresh:
            victims = others
        if not victims:
            return None
        if tenants is None and len(self._parts.tenants()) > 1:
            rich = self._parts.rich(memory)
            victims = [holder for holder in victims if holder.tenant in rich] or victims
        latest_first = sorted(victims, key=lambda holder: latest.get(holder.id, _NO_KEY), reverse=True)
        victim = min(latest_first, key=self._cost_per_block)
        self.preempt(victim)
        return victim

    def preempt(self, holder: Sequence) -> None:
        """Take all blocks of a holder; its requests wait until it is resumed."""
        self._counters.preemptions += 1
        holder.account.usage.preemptions += 1
        for request in self._board.active():
            if request.seq.holder is holder:
                self._board.preempt(request)
        self._give_up(holder)

    def starves(self, request: Request) -> bool:
        """Whether a request that found no room is due one: nobody may overtake it, and `make_way` will see
        to it."""
        if not self._parts.due(request):
            return False
        self._starving.append(request)
        return True

    def make_way(self, step: int) -> None:
        """Before anything is planned: preempt holders of rich tenants for the requests that are due room."""
        starving, self._starving = self._starving, []
        for request in starving:
            memory = request.seq.memory
            while request.state is RequestState.WAITING and missing_blocks(request) > memory.pool.available:
                rich = self._parts.rich(memory)
                if not self._parts.due(request) or request.seq.tenant in rich:
                    break
                if self.preempt_one(memory, (), step, fresh=False, tenants=rich) is None:
                    break

    def _give_up(self, holder: Sequence) -> None:
        holder.memory.drop_blocks(holder)
        if holder.logits_kept:
            self._kept.forget(holder)

    def _holders(self, memory: ModelMemory) -> Iterable[Sequence]:
        return (s for s in self._family.sequences.values() if s.table.blocks and s.memory is memory)

    def _busy(self) -> set[int]:
        """Holders that a request waits or runs on."""
        return {request.seq.holder.id for request in self._board.active()}

    def _latest_keys(self) -> dict[int, Key]:
        latest: dict[int, Key] = {}
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


def _has_gained(holder: Sequence, step: int) -> bool:
    """Whether a resumed holder ran for a while and got further than it had been before: else two that take
    turns would recompute for ever, where a step has room for few rows."""
    return step - holder.resumed_at >= FRESH_STEPS and holder.computed > holder.resumed_from
