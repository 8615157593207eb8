"""Several strategies side by side on one problem; the losers are stopped."""

from typing import Annotated

import anyio
from msgspec import Meta

from .base import Branch, Search, Select, Strategy
from .best_of_n import BestOfN
from .greedy import Greedy

Members = Annotated[tuple[Strategy, ...], Meta(min_length=1, max_length=64)]


class Portfolio(Strategy, tag="portfolio", kw_only=True, frozen=True):
    """Run `members` side by side from the shared prompt and stop the losers (Gomes and Selman 2001).

    The tokens are shared equally where the budget has any, and so are those kept for answers; what a member
    leaves stays unspent. Members finish in the order of their tokens. Those still running are stopped once a
    sound verifier passed an answer, once a finished member's best scores `accept` or more, or once `quorum`
    finished members agree on an answer (None: more than half of all). One whose own best so far scores more
    than `margin` below that of a finished member is stopped alone (None: never). Each member's best is one
    candidate.
    """

    members: Members = (Greedy(), BestOfN(n=16))
    accept: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.95
    quorum: Annotated[int, Meta(ge=2)] | None = None
    margin: Annotated[float, Meta(ge=0.0, le=1.0)] | None = 0.2
    select: Select = Select.WEIGHTED_VOTE

    async def run(self, search: Search) -> None:
        race = _Race(self, search)
        async with search.each(race.lanes, race.run) as done:
            async for branch in done:
                verdict = await race.finished(branch)
                if verdict is not None:
                    search.note(f"portfolio: {verdict}", finished=[str(lane.id) for lane in race.done])
                    break

    def selection(self) -> Select:
        return self.select


class _Race:
    """The members of one search under way: one fork of the root, its lane, for each."""

    def __init__(self, rules: Portfolio, search: Search) -> None:
        self.rules = rules
        self.search = search
        self.lanes = search.root.fork(len(rules.members))
        self.done: list[Branch] = []
        left = search.budget.tokens_left
        self._reserve = search.budget.answer_reserve // len(self.lanes)
        self._share = None if left is None else max(1, left // len(self.lanes))
        self._members = dict(zip((lane.id for lane in self.lanes), rules.members, strict=True))
        self._best: dict[str, Branch] = {}
        self._inside: dict[str, Search] = {}
        self._stops: dict[str, anyio.CancelScope] = {}
        self._beaten: set[str] = set()

    async def run(self, lane: Branch) -> None:
        """Let the lane's member search in its share."""
        member = self._members[lane.id]
        with anyio.CancelScope() as stop:
            self._stops[lane.id] = stop
            async with (
                self.search.phase(f"portfolio {lane.id}", tokens=self._share, answer_reserve=self._reserve),
                self.search.scope(lane, member) as inside,
            ):
                self._inside[lane.id] = inside
                await member.run(inside)

    async def finished(self, lane: Branch) -> str | None:
        """Take the result of a member that ended; why the race is over, None where it goes on. A member that
        was beaten has not finished: it agrees with nobody."""
        if lane.id in self._beaten:
            return None
        self.done.append(lane)
        best = self._incumbent(lane)
        if best is None:
            return None
        self._best[lane.id] = best
        if best.score is not None and best.score >= self.rules.accept:
            return f"{self._named(lane)} is accepted with a score of {best.score:.3f}"
        votes = await self._votes(best)
        if votes >= (self.rules.quorum or len(self.lanes) // 2 + 1) > 1:
            return f"{votes} members agree on {best.answer}"
        self._stop_beaten(best)
        return None

    def _incumbent(self, lane: Branch) -> Branch | None:
        inside = self._inside.get(lane.id)
        return None if inside is None else inside.incumbent

    async def _votes(self, best: Branch) -> int:
        """Finished members whose best has the same answer."""
        finished = list(self._best.values())
        names = await self.search.classes(finished)
        own = names[finished.index(best)]
        return sum(name is not None and name == own for name in names)

    def _stop_beaten(self, best: Branch) -> None:
        if best.score is None or self.rules.margin is None:
            return
        for lane in self.lanes:
            own = None if lane in self.done or lane.id in self._beaten else self._incumbent(lane)
            if own is None or own.score is None or own.score >= best.score - self.rules.margin:
                continue
            self.search.note(f"portfolio: {self._named(lane)} is beaten", score=own.score, by=best.score)
            self._beaten.add(lane.id)
            self._stops[lane.id].cancel()

    def _named(self, lane: Branch) -> str:
        return f"{type(self._members[lane.id]).__struct_config__.tag} ({lane.id})"
