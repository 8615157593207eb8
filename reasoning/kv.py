"""Which policy positions one search owns, in logical terms, and who gives way at the cap
(`Budget.kv_tokens`)."""

import enum
from typing import Protocol

from .clock import Clock, Path, Ticket
from .graph import Node


class KvHolder(Protocol):
    """A live branch as the account sees it."""

    path: Path

    @property
    def nodes(self) -> list[Node]: ...

    @property
    def busy(self) -> bool: ...

    def park_blocks(self) -> None:
        """Give the blocks back; the next use recomputes them."""
        ...


class Room(enum.Enum):
    """Answer to an ask for positions: there, not before someone gave way, give way yourself, or never."""

    HERE = enum.auto()
    LATER = enum.auto()
    YIELD = enum.auto()
    NEVER = enum.auto()


class OwnedKv:
    """Positions of the policy that live branches own, a shared one counted once.

    A node is owned while a live, unparked branch has it on its path (`Node.owners`). At the cap idle
    branches are parked, the longest idle first; then the running branch that comes last waits; alone at the
    cap, a branch ends. Called under the ledger's lock.
    """

    def __init__(self, cap: int | None) -> None:
        self.cap = cap
        self.owned = 0
        self.peak = 0
        self.refused = False
        self._holders: dict[Path, KvHolder] = {}

    def own(self, holder: KvHolder) -> None:
        """A branch was forked, or is used for the first time or after parking."""
        self._holders.pop(holder.path, None)
        self._holders[holder.path] = holder
        for node in holder.nodes:
            if node.owners == 0:
                self.owned += node.length
            node.owners += 1

    def disown(self, holder: KvHolder) -> None:
        """A branch was pruned or parked. Nothing happens if it owns nothing."""
        if self._holders.pop(holder.path, None) is None:
            return
        for node in holder.nodes:
            node.owners -= 1
            if node.owners == 0:
                self.owned -= node.length

    def use(self, holder: KvHolder) -> None:
        """The branch is about to run: it owns its path again and is the last to be parked."""
        if holder.path in self._holders:
            self._holders[holder.path] = self._holders.pop(holder.path)
        else:
            self.own(holder)

    def attach(self, holder: KvHolder, node: Node) -> None:
        """The branch began a node."""
        if holder.path in self._holders:
            node.owners += 1
            self.owned += node.length

    def detach(self, holder: KvHolder, node: Node) -> None:
        """The branch dropped a node from its path."""
        if holder.path in self._holders:
            node.owners -= 1
            if node.owners == 0:
                self.owned -= node.length

    def resize(self, node: Node, delta: int) -> None:
        """The node grew or shrank by `delta` positions."""
        node.length += delta
        if node.owners:
            self.owned += delta

    def ask(self, holder: KvHolder, positions: int, ticket: Ticket, clock: Clock) -> Room:
        """Whether the running branch may own `positions` more."""
        if self._fits(positions):
            return Room.HERE
        if self._park_one(holder):
            return Room.LATER
        others = [t for t in clock.holding() if t is not ticket and not t.suspended]
        if not others:
            return Room.NEVER
        last = max([ticket, *others], key=lambda t: t.path)
        clock.suspend(last)
        waiting = self._holders.get(last.path)
        if waiting is not None:
            self.disown(waiting)
        return Room.YIELD if last is ticket else Room.LATER

    def take(self, holder: KvHolder, positions: int) -> bool:
        """Use an idle branch and let it own `positions` more, parking others for it; whether it fits."""
        self.use(holder)
        while not self._fits(positions):
            if not self._park_one(holder):
                self.refused = True
                return False
        return True

    def _fits(self, positions: int) -> bool:
        owned = self.owned + positions
        if self.cap is not None and owned > self.cap:
            return False
        if owned > self.peak:
            self.peak = owned
        return True

    def _park_one(self, spared: KvHolder) -> bool:
        """Park the branch that is idle for the longest, of those that free something."""
        for holder in self._holders.values():
            if holder is not spared and not holder.busy and self._exclusive(holder):
                self.disown(holder)
                holder.park_blocks()
                return True
        return False

    def may_resume(self, holder: KvHolder, running: list[Ticket]) -> bool:
        """Whether a suspended branch fits again, with one position to go on; it always does when no other
        runs."""
        if self.cap is None or all(t.suspended for t in running):
            return True
        return self.owned + self._missing(holder) + 1 <= self.cap

    def _exclusive(self, holder: KvHolder) -> int:
        return sum(node.length for node in holder.nodes if node.owners == 1)

    def _missing(self, holder: KvHolder) -> int:
        return sum(node.length for node in holder.nodes if node.owners == 0)
