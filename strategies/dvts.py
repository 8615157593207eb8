"""Diverse verifier tree search: several greedy searches that never compete."""

from collections.abc import Sequence

from .base import Branch, Search
from .growth import Growth, Leaf, Scoring, best_first, path_of
from .tree import Count, TreeStrategy, shares


class Dvts(TreeStrategy, tag="dvts", kw_only=True, frozen=True):
    """Diverse verifier tree search (Beeching et al. 2024, "Scaling test-time compute with open models").

    `n / width` subtrees, rounded up, grow apart from each other. Each samples `width` next steps, goes on
    from the one that the step verifier scores highest and prunes the rest, `depth` steps at most. Where
    `n` does not divide, the first subtrees have one child more than the last ones, `n` in all.

    Every path that finishes is offered. A subtree ends when its best child has finished: a path that a sound
    verifier refuted is not its best. What is left at `depth`, or when the budget ends, concludes, the best
    first.

    A child without a rival is the best of its subtree unseen: it is scored once a later choice needs it.

    `parallel`: how many subtrees grow at a time, None for all of them as published. They know nothing of each
    other, so the order changes no subtree; where a sound verifier ends the search, one after the other costs
    less and takes longer.
    """

    n: Count = 16
    width: Count = 4
    depth: Count = 40
    parallel: Count | None = None

    async def run(self, search: Search) -> None:
        growth = self.growth(search, scoring=Scoring.RIVALS)
        widths = shares(self.n, -(-self.n // self.width))
        stems = growth.fork(search.root, len(widths))
        subtrees = [Subtree(stem, width) for stem, width in zip(stems, widths, strict=True)]
        at_a_time = self.parallel or len(subtrees)
        left: list[Leaf] = []
        for start in range(0, len(subtrees), at_a_time):
            if search.budget.spent:
                break
            left.extend(await self._grow(search, growth, subtrees[start : start + at_a_time]))
        await growth.conclude(left)

    async def _grow(self, search: Search, growth: Growth, subtrees: Sequence["Subtree"]) -> list[Leaf]:
        """Grow some subtrees to their ends; what the budget or the depth left of them."""
        left: list[Leaf] = []
        for level in range(1, self.depth + 1):
            front = [child for tree in subtrees for child in growth.fork(tree.tip, tree.width)]
            leaves = await growth.grow(front)
            left.extend(leaf for leaf in leaves if leaf.cut)
            best = [(tree, tree.choose(growth, leaves)) for tree in subtrees]
            going = [(tree, leaf) for tree, leaf in best if leaf is not None]
            search.note(
                f"level {level}: {len(going)} of {len(subtrees)} subtrees go on",
                level=level,
                best=[leaf.branch.id for _, leaf in going],
            )
            if not going or level == self.depth or search.budget.spent:
                left.extend(leaf for _, leaf in going)
                break
            subtrees = [Subtree(leaf.branch, tree.width) for tree, leaf in going]
        return left


class Subtree:
    """One greedy search: the tip of its path, and how many children it samples."""

    def __init__(self, tip: Branch, width: int) -> None:
        self.tip = tip
        self.width = width

    def choose(self, growth: Growth, leaves: Sequence[Leaf]) -> Leaf | None:
        """The best child among `leaves`, the others pruned; None where the subtree has ended."""
        own = path_of(self.tip)
        children = best_first(leaf for leaf in leaves if path_of(leaf.branch)[:-1] == own)
        standing = [leaf for leaf in children if leaf.branch.verified is not False and not leaf.cut]
        best = standing[0] if standing and standing[0].open else None
        losers = [leaf for leaf in children if leaf.open and leaf is not best]
        growth.prune_all(losers, "not the best of its subtree")
        return best
