"""Best-first search: the most promising open step of the whole tree is next."""

import heapq

from .base import Search
from .growth import Leaf, best_first, path_of
from .tree import Count, TreeStrategy


class BestFirst(TreeStrategy, tag="best_first", kw_only=True, frozen=True):
    """Best-first tree search (Koh et al. 2024, arXiv 2407.01476).

    Expand the open leaf of the whole tree that the step verifier scores highest into `width` children;
    `parallel` leaves at a time, the root alone at first. It ends after `expansions` of them, when no leaf of
    less than `depth` steps is open, or with the budget. Then the best open leaves conclude, as many as make
    `width` finished paths.
    """

    width: Count = 4
    expansions: Count = 32
    parallel: Count = 2
    depth: Count = 40

    async def run(self, search: Search) -> None:
        growth = self.growth(search)
        start = len(path_of(search.root))
        queue: list[tuple[bool, float, tuple[int, ...], Leaf]] = []
        left: list[Leaf] = []
        front = growth.fork(search.root, self.width)
        expanded = 1
        while front:
            for leaf in await growth.grow(front):
                path = path_of(leaf.branch)
                if leaf.open and len(path) - start < self.depth:
                    heapq.heappush(queue, (leaf.value is None, -(leaf.value or 0.0), path, leaf))
                elif leaf.open or leaf.cut:
                    left.append(leaf)
            count = 0 if search.budget.spent else min(self.parallel, self.expansions - expanded, len(queue))
            chosen = [heapq.heappop(queue)[-1] for _ in range(count)]
            search.note(
                f"{expanded} of {self.expansions} expansions: {len(queue) + len(chosen)} leaves are open",
                expanded=expanded,
                chosen={leaf.branch.id: leaf.value for leaf in chosen},
            )
            expanded += count
            front = [child for leaf in chosen for child in growth.fork(leaf.branch, self.width)]
        left = best_first([*left, *(entry[-1] for entry in queue)])
        missing = max(0, self.width - growth.finished)
        growth.prune_all(left[missing:], "not reached")
        await growth.conclude(left[:missing])
