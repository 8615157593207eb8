"""The tree of a Monte Carlo tree search: visits and values, the rules that choose among children, back-up."""

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec


class Backup(enum.StrEnum):
    """What a node's value is: the mean of what came back through it, or the best of it."""

    MEAN = "mean"
    MAX = "max"


class TreeNode(msgspec.Struct, eq=False, kw_only=True):
    """One state of the search; its edge from `parent` has the same statistics.

    `visits` (N) simulations gave `total` (W) in sum and at best `best`; `pending` more are under way. `prior`
    (P) is the policy's share among the siblings. `closed`: nothing below can be selected any more; `busy`: a
    simulation under way holds all that could be. `leaf` is the path that ends here, as it was when it grew.
    """

    leaf: Any = None
    parent: "TreeNode | None" = None
    prior: float = 1.0
    visits: int = 0
    total: float = 0.0
    best: float = -math.inf
    pending: int = 0
    closed: bool = False
    busy: bool = False
    children: "list[TreeNode]" = []

    def attach(self, leaves: Sequence[Any], priors: Sequence[float]) -> None:
        """Give the node its children."""
        self.children = [
            TreeNode(leaf=leaf, parent=self, prior=prior) for leaf, prior in zip(leaves, priors, strict=True)
        ]

    def path(self) -> "Iterator[TreeNode]":
        """The node and its ancestors, the root last."""
        node: TreeNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def value(self, backup: Backup) -> float:
        """Q, 0 without a visit. A simulation under way counts as one that gave 0 (virtual loss)."""
        if not self.visits:
            return 0.0
        worth = self.total if backup == Backup.MEAN else self.best * self.visits
        return worth / (self.visits + self.pending)


Rule = Callable[[TreeNode, TreeNode], float]
"""(parent, child) -> how much the child asks to be selected."""


def puct(q: float, prior: float, visits: int, parent_visits: int, *, c_base: float, c_init: float) -> float:
    """Q + c P sqrt(N) / (1 + n) with c = log((N + c_base + 1) / c_base) + c_init (Silver et al. 2018,
    doi:10.1126/science.aar6404)."""
    c = math.log((parent_visits + c_base + 1.0) / c_base) + c_init
    return q + c * prior * math.sqrt(parent_visits) / (1.0 + visits)


def uct(q: float, visits: int, parent_visits: int, *, w: float) -> float:
    """Q + w sqrt(ln N / n), infinite for a child without a visit (Kocsis and Szepesvari 2006)."""
    if not visits:
        return math.inf
    return q + w * math.sqrt(math.log(parent_visits) / visits)


def select_leaf(root: TreeNode, rule: Rule) -> TreeNode | None:
    """The leaf at the end of the best-ruled path that is neither closed nor busy, None where there is none.

    Equals go to the greater prior, then to the first.
    """
    if root.closed or root.busy:
        return None
    node = root
    while node.children:
        node = best_child(node, rule)
    return node


def best_child(node: TreeNode, rule: Rule) -> TreeNode:
    """The child that asks most, of those that can be selected."""
    free = [child for child in node.children if not child.closed and not child.busy]
    return max(free, key=lambda child: (rule(node, child), child.prior))


def hold(leaf: TreeNode) -> None:
    """A simulation goes to the leaf: a virtual loss on its path, and no other one may come to it."""
    for node in leaf.path():
        node.pending += 1
    leaf.busy = True
    for node in leaf.path():
        if node.parent is None or not all(child.closed or child.busy for child in node.parent.children):
            return
        node.parent.busy = True


def release(leaf: TreeNode) -> None:
    """The simulation ended."""
    for node in leaf.path():
        node.pending -= 1
        node.busy = False


def back_up(leaf: TreeNode, value: float, discount: float) -> None:
    """Add the value of a simulation to its leaf and, times `discount` for each edge, to all above."""
    for node in leaf.path():
        node.visits += 1
        node.total += value
        node.best = max(node.best, value)
        value *= discount


def close(node: TreeNode) -> list[TreeNode]:
    """Nothing more can be found below the node; returns it and the ancestors of which that is now true
    too."""
    closed: list[TreeNode] = []
    for above in node.path():
        if not all(child.closed for child in above.children):
            break
        above.closed = True
        closed.append(above)
    return closed


def principal_leaf(root: TreeNode, backup: Backup) -> TreeNode:
    """Where the most visited path that is not closed ends; equals go to the greater value, then the first."""
    node = root
    while True:
        free = [child for child in node.children if not child.closed]
        if not free:
            return node
        node = max(free, key=lambda child: (child.visits, child.value(backup)))


def softmax(logits: Sequence[float]) -> list[float]:
    """Shares that sum to 1."""
    if not logits:
        return []
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
