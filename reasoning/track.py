"""Where the charges of one request go: the nodes that hold the positions on its branch's path."""

from bisect import bisect_right

from ..engine.protocol import ModelCost
from .graph import Node
from .kv import KvHolder


class Track:
    """The nodes of a branch at the start of a request, and the node that the request fills.

    Charges to the open node are kept by position until the request ends, since one extension may turn out
    to be several steps. Positions are absolute: the prompt counts.
    """

    def __init__(
        self, holder: KvHolder, nodes: list[Node], open_node: Node, starts: list[int] | None = None
    ) -> None:
        """`starts` are the nodes' first positions where the request does not count as the branch does."""
        self.holder = holder
        self.open_node = open_node
        self._nodes = nodes
        self._starts = [node.start for node in nodes] if starts is None else starts
        self.prompt_stop = nodes[0].start + nodes[0].length if nodes else 0
        self.open_charges: dict[int, int] = {}

    def charge(self, position: int, flops: int) -> None:
        """Book work done at one position."""
        if position >= self.open_node.start:
            self.open_charges[position] = self.open_charges.get(position, 0) + flops
            self.open_node.flops_spent += flops
        else:
            self._nodes[bisect_right(self._starts, position) - 1].flops_spent += flops

    def charge_rows(self, start: int, rows: int, cost: ModelCost, sign: int) -> None:
        """Book the rows `start <= p < start + rows`, each to the node that holds it."""
        position, stop = start, start + rows
        while position < min(stop, self.open_node.start):
            index = bisect_right(self._starts, position) - 1
            after = self._starts[index + 1] if index + 1 < len(self._starts) else self.open_node.start
            end = min(stop, after)
            self._nodes[index].flops_spent += sign * cost.rows(position, end)
            position = end
        for p in range(position, stop):
            self.charge(p, sign * cost.rows(p, p + 1))

    def flops_between(self, start: int, stop: int | None) -> int:
        """Work booked to the open node's positions `start <= p < stop` (None: to the end)."""
        return sum(f for p, f in self.open_charges.items() if p >= start and (stop is None or p < stop))

    def prompt_rows(self, start: int, rows: int) -> int:
        """How many of the rows belong to the prompt."""
        return max(0, min(start + rows, self.prompt_stop) - start)
