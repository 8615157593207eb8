"""How the blocks of a pool are spread over the tenants that have something to do."""

from collections.abc import Collection

from .board import Board
from .family import Family
from .memory import ModelMemory
from .request import Request


class BlockParts:
    """An equal part of the pool is due to each tenant with requests. Who holds more is *rich* and gives way
    to one that holds less and finds no room; nobody is brought below its part. Recounted when asked: only a
    full pool with several tenants asks.
    """

    def __init__(self, family: Family, board: Board) -> None:
        self._family = family
        self._board = board

    def tenants(self) -> Collection[str]:
        """Tenants with requests that wait or run."""
        return self._board.waiting.tenants.keys() | self._board.running.tenants.keys()

    def rich(self, memory: ModelMemory) -> set[str]:
        """Tenants that hold more than their part."""
        part, held = self._part(memory), self._held(memory)
        return {tenant for tenant, blocks in held.items() if len(blocks) > part}

    def due(self, request: Request) -> bool:
        """Whether the request is within its tenant's part, or is all that the tenant would hold."""
        memory = request.seq.memory
        held = len(self._held(memory).get(request.seq.tenant, ()))
        return held == 0 or held + missing_blocks(request) <= self._part(memory)

    def _part(self, memory: ModelMemory) -> int:
        return memory.pool.total // max(len(self.tenants()), 1)

    def _held(self, memory: ModelMemory) -> dict[str, set[int]]:
        held: dict[str, set[int]] = {}
        for seq in self._family.sequences.values():
            if seq.memory is memory and seq.table.blocks:
                held.setdefault(seq.tenant, set()).update(seq.table.blocks)
        return held


def missing_blocks(request: Request) -> int:
    """Blocks for the rows that a request lacks, and one to grow; what the cache holds of them is not looked
    up."""
    memory, holder = request.seq.memory, request.seq.holder
    return memory.blocks_needed(holder, max(request.end, holder.computed)) + 1
