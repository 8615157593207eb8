"""How many KV positions one account holds: shared ones once, and once per sequence."""

from ..protocol import EngineUsage


class Account:
    """Counters of one account on one model's pool, written through to its `EngineUsage`.

    *Held* positions are those standing in blocks that a table or a planned write of the account holds, each
    once. *Unshared* positions are what the account's sequences would hold without sharing. Several models'
    accounts may write to one `EngineUsage`: it then sums them. Peaks are taken by `settle`, between steps
    only.
    """

    __slots__ = ("_holders", "held", "sequences", "unshared", "usage")

    def __init__(self, usage: EngineUsage) -> None:
        self.usage = usage
        self.held = 0
        self.unshared = 0
        self.sequences = 0
        """Sequences that count into this account, holding blocks or not."""
        self._holders: dict[int, int] = {}

    def hold(self, block: int, filled: int) -> None:
        """A table of this account took `block`, in which `filled` positions stand."""
        holders = self._holders.get(block, 0)
        self._holders[block] = holders + 1
        if holders == 0:
            self.grow(filled)

    def release(self, block: int, filled: int) -> None:
        """A table of this account gave `block` up."""
        holders = self._holders[block] - 1
        if holders:
            self._holders[block] = holders
            return
        del self._holders[block]
        self.grow(-filled)

    def grow(self, positions: int) -> None:
        """Positions were written to (negative: cut from) a block that this account holds."""
        self.held += positions
        self.usage.kv_tokens += positions

    def grow_unshared(self, positions: int) -> None:
        self.unshared += positions
        self.usage.kv_unshared_tokens += positions

    def settle(self) -> None:
        """A step or a batch of commands is complete: take the peaks."""
        usage = self.usage
        usage.kv_peak_tokens = max(usage.kv_peak_tokens, usage.kv_tokens)
        usage.kv_unshared_peak_tokens = max(usage.kv_unshared_peak_tokens, usage.kv_unshared_tokens)

    def holders(self) -> dict[int, int]:
        """Tables of this account per block, for the checker."""
        return dict(self._holders)
