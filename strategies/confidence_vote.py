"""A vote in which each trace weighs its confidence, or nothing."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from .base import Branch, Search
from .computed import Computed


def scale_of(weights: Iterable[float]) -> float:
    """The least power of two that no finite weight exceeds: dividing by it makes scores of weights and keeps
    their ratios exactly. 1 where there is none above 0."""
    highest = max((weight for weight in weights if 0.0 < weight < math.inf), default=1.0)
    mantissa, exponent = math.frexp(highest)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))


def leading_share(classes: Sequence[str | None], weights: Sequence[float]) -> float:
    """The share of all weight that the answer with the most has; 0 where nothing weighs. Traces without an
    answer (None) do not count."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for name, weight in zip(classes, weights, strict=True):
        if name is not None:
            parts[name].append(weight)
    totals = [math.fsum(values) for values in parts.values()]
    whole = math.fsum(totals)
    return max(totals) / whole if whole > 0.0 else 0.0


class ConfidenceVote:
    """Offers traces with their weight as score, so that `Select.WEIGHTED_VOTE` elects by it. Weights may
    change as more becomes known: the trace is then offered again."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._scores: dict[str, float] = {}
        self._branches: list[Branch] = []

    async def cast(self, weights: Sequence[tuple[Branch, float]]) -> None:
        """The weight in [0, infinity] of every trace so far; infinite ones weigh like the scale."""
        scale = scale_of(weight for _, weight in weights)
        for branch, weight in weights:
            score = min(1.0, weight / scale)
            if self._scores.get(branch.id) == score:
                continue
            if branch.id not in self._scores:
                self._branches.append(branch)
            self._scores[branch.id] = score
            await branch.evaluate(Computed("confidence", score))
            self._search.offer(branch)

    async def share(self) -> float:
        """The leader's share of the weight; what a sound verifier refuted leads nothing."""
        voters = [branch for branch in self._branches if branch.complete and branch.verified is not False]
        classes = await self._search.classes(voters)
        return leading_share(classes, [self._scores[branch.id] for branch in voters])
