"""The tree of adaptive branching search: each node has an arm that makes a child, and one for each child."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from .arm_posterior import Belief, Posterior


class AbNode(msgspec.Struct, eq=False, kw_only=True):
    """One answer or step. `gen` is what is believed of the scores that a new child brings, `cont` of those
    that going on from its children brings; `arm` is its own, as its parent sees it.

    `state` is what it stands for. `closed`: nothing can be made of it any more, nor of what is below;
    `barren`: it can have no more children of its own.
    """

    gen: Posterior
    cont: Posterior
    arm: Posterior
    state: Any = None
    parent: "AbNode | None" = None
    score: float | None = None
    barren: bool = False
    closed: bool = False
    children: "list[AbNode]" = []

    @classmethod
    def of(cls, belief: Belief, state: Any = None, parent: "AbNode | None" = None) -> "AbNode":
        """A node of which nothing is known yet."""
        prior = belief.prior
        return cls(gen=prior, cont=prior, arm=prior, state=state, parent=parent)

    def add(self, belief: Belief, state: Any, score: float | None) -> "AbNode":
        """A new child, whose score goes up the tree; None tells nothing."""
        child = AbNode.of(belief, state, self)
        child.score = score
        self.children.append(child)
        if score is not None:
            child.arm = child.arm.told(score)
            self.tell(score)
        return child

    def tell(self, score: float) -> None:
        """A new child of this node scored: GEN of this node, CONT of each ancestor, and the arm of the child
        that the path takes there."""
        self.gen = self.gen.told(score)
        node = self
        while node.parent is not None:
            node.arm = node.arm.told(score)
            node.parent.cont = node.parent.cont.told(score)
            node = node.parent


def choose(root: AbNode, rng: random.Random) -> AbNode | None:
    """The node to make a child of, by Thompson sampling; None where nothing is left to choose.

    At each node one draw of GEN and one of CONT, the greater decides, GEN where they are equal; then one draw
    of each child's arm, in their order. No draw where there is nothing to choose between.
    """
    node = root
    while not node.closed:
        going = [child for child in node.children if not child.closed]
        if not going or (not node.barren and _generates(node, rng)):
            return node
        node = going[0] if len(going) == 1 else _best_arm(going, rng)
    return None


def exhaust(node: AbNode) -> None:
    """The node can have no more children. Closes it where all it has are closed, and so each ancestor of
    which both hold."""
    node.barren = True
    here: AbNode | None = node
    while here is not None and here.barren and all(child.closed for child in here.children):
        here.closed = True
        here = here.parent


def by_score(root: AbNode) -> list[AbNode]:
    """The nodes below the root that are not closed, the highest score first and those without one last;
    equals in the order of their making, level by level."""
    found, waiting = [], list(root.children)
    while waiting:
        node = waiting.pop(0)
        waiting.extend(node.children)
        if not node.closed:
            found.append(node)
    return sorted(found, key=lambda node: (node.score is None, -(node.score or 0.0)))


def _generates(node: AbNode, rng: random.Random) -> bool:
    gen, cont = node.gen.draw(rng), node.cont.draw(rng)
    return gen >= cont


def _best_arm(children: Sequence[AbNode], rng: random.Random) -> AbNode:
    draws = [child.arm.draw(rng) for child in children]
    return children[draws.index(max(draws))]
