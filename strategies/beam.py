"""Beam search over steps, led by a step verifier."""

from typing import Annotated

from msgspec import Meta

from .base import Search
from .growth import Leaf, best_first
from .tree import Count, TreeStrategy, shares


class Beam(TreeStrategy, tag="beam", kw_only=True, frozen=True):
    """PRM beam search: keep the best beams after each step, and go on from each several times.

    Snell et al. 2024, arXiv 2408.03314; Beeching et al. 2024, "Scaling test-time compute with open models".

    1. Sample `n` first steps.
    2. Score each beam's new step, behind `lookahead` greedy steps where that is not 0. These are charged and
       thrown away: they lead the search, and are never offered.
    3. Keep the best `n / width` beams, rounded up, and prune the others.
    4. Sample `n` next steps from those kept, in equal shares; where `n` does not divide, the better beams
       get one more. Repeat from 2, `depth` steps at most.

    A beam that finishes is offered, and leaves its place in the front to the beams that go on. The search
    ends with `n` finished beams. What is left at `depth`, or when the budget ends, concludes, the best first.
    """

    n: Count = 16
    width: Count = 4
    depth: Count = 40
    lookahead: Annotated[int, Meta(ge=0, le=64)] = 0

    async def run(self, search: Search) -> None:
        growth = self.growth(search, lookahead=self.lookahead)
        keep = -(-self.n // self.width)
        left: list[Leaf] = []
        front = growth.fork(search.root, self.n)
        for level in range(1, self.depth + 1):
            leaves = await growth.grow(front)
            beams = best_first(leaf for leaf in leaves if leaf.open)
            left.extend(leaf for leaf in leaves if leaf.cut)
            if search.budget.spent:
                left.extend(beams)
                break
            if growth.finished >= self.n:
                growth.prune_all(beams, f"{self.n} beams have finished")
                break
            beams, worse = beams[:keep], beams[keep:]
            growth.prune_all(worse, f"not among the best {keep}")
            search.note(
                f"level {level}: {len(beams)} beams kept",
                level=level,
                kept=[leaf.branch.id for leaf in beams],
            )
            if not beams or level == self.depth:
                left.extend(beams)
                break
            front = [
                child
                for leaf, places in zip(beams, shares(self.n, len(beams)), strict=True)
                for child in growth.fork(leaf.branch, places)
            ]
        await growth.conclude(left)
