"""Reward-balanced search: a fixed width, shared out by the scores."""

import math
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from .base import Search
from .growth import Growth, Leaf, best_first
from .tree import Count, TreeStrategy


class Rebase(TreeStrategy, tag="rebase", kw_only=True, frozen=True):
    """Reward-balanced search, REBASE (Wu et al. 2024, arXiv 2408.00724).

    Sample `width` first steps. At each depth the leaf of reward R_i gets
    W_i = ceil(W exp(R_i / T) / sum_{j >= i} exp(R_j / T)) children, the best leaf first, where W is the width
    that is left and T the `balance`; leaves that get none are pruned. Each finished path takes 1 from the
    width for good. It ends when no width or no leaf is left, at `depth`, or with the budget: what is left
    then concludes, the best first.
    """

    width: Count = 16
    balance: Annotated[float, Meta(ge=0.01, le=100.0)] = 0.2
    depth: Count = 25

    async def run(self, search: Search) -> None:
        growth = self.growth(search)
        left: list[Leaf] = []
        front = growth.fork(search.root, self.width)
        for depth in range(1, self.depth + 1):
            leaves = await growth.grow(front)
            left.extend(leaf for leaf in leaves if leaf.cut)
            going = best_first(leaf for leaf in leaves if leaf.open)
            if search.budget.spent or depth == self.depth:
                left.extend(going)
                break
            width = max(0, self.width - growth.finished)
            kept = self.keep(search, growth, going, width)
            shared = list(zip(kept, self.widths(kept, width), strict=True))
            search.note(
                f"depth {depth}: width {sum(places for _, places in shared)} over {len(kept)} leaves",
                depth=depth,
                widths={leaf.branch.id: places for leaf, places in shared},
            )
            growth.prune_all((leaf for leaf, places in shared if not places), "no width left for it")
            front = [child for leaf, places in shared if places for child in growth.fork(leaf.branch, places)]
            if not front:
                break
        await growth.conclude(left)

    def keep(self, search: Search, growth: Growth, leaves: Sequence[Leaf], width: int) -> Sequence[Leaf]:
        """The open leaves, the best first, that share the width: all of them. What builds on it prunes the
        others here."""
        return leaves

    def widths(self, leaves: Sequence[Leaf], width: int) -> list[int]:
        """How many children each leaf gets."""
        return balanced_widths([leaf.value for leaf in leaves], width, self.balance)


def balanced_widths(rewards: Sequence[float | None], width: int, balance: float) -> list[int]:
    """How many children each leaf gets; `rewards` in [0, 1], highest first, None last. The widths add up to
    `width` where there is a leaf.

    The sum is reduced leaf by leaf, as the authors' code does it, so that a share that is whole but for
    rounding counts as the next integer, as it does there: 6 over four equal leaves is 2, 2, 2, 0. A reward
    that is not known counts as the lowest known one.
    """
    known = [reward for reward in rewards if reward is not None]
    lowest = min(known, default=0.0)
    weights = [math.exp((lowest if reward is None else reward) / balance) for reward in rewards]
    total = sum(weights)
    widths: list[int] = []
    for weight in weights:
        share = 1.0 if total <= weight else weight / total
        widths.append(math.ceil(width * share))
        width -= widths[-1]
        total -= weight
    return widths
