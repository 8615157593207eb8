"""Samples that vote: drawn side by side, offered as they end, their votes read by branch id."""

import itertools
from collections.abc import Awaitable, Callable

from ..engine.sampling.params import SamplingParams
from .base import Branch, Search
from .conclusion import concluded, reach_answer
from .votes import PENDING, Pending, Vote, leaders, tally

DECIDED = "the vote is decided"
"""Why a sample was pruned that the vote did not wait for."""

Enough = Callable[[], Awaitable[bool]]


class Samples:
    """Complete solutions of one problem, for a vote: no verifier is asked, and none is paid for.

    `temperature` None: the search's own sampling; a number samples at it from the whole distribution.
    """

    def __init__(self, search: Search, temperature: float | None) -> None:
        self._search = search
        self._sampling = None if temperature is None else SamplingParams(temperature=temperature)
        self._branches: list[Branch] = []
        self._ended: set[str] = set()

    def __len__(self) -> int:
        """Samples begun so far."""
        return len(self._branches)

    async def draw(self, n: int | None, enough: Enough | None = None) -> bool:
        """Draw `n` more (None: as many as the budget allows) and offer each that ends.

        `enough` is asked after each: once it says so those that still run are pruned, and True is returned.
        What budget or length cut is concluded, one after the other, when nothing else runs; it has ended only
        then. A sample that failed ends without a vote.
        """
        wave = self._search.root.fork(n)
        self._branches += wave
        cut: set[str] = set()

        async def sample(branch: Branch) -> None:
            if not await reach_answer(branch, self._sampling):
                cut.add(branch.id)

        async with self._search.each(wave, sample) as done:
            async for branch in done:
                if branch.id not in cut and await self._offer(branch, enough):
                    self._prune(wave)
                    return True
        async for branch in concluded(self._search, [branch for branch in wave if branch.id in cut]):
            if await self._offer(branch, enough):
                self._prune(wave)
                return True
        self._ended.update(branch.id for branch in wave)
        return enough is not None and await enough()

    async def votes(self) -> list[Vote | Pending]:
        """The vote of each sample by branch id: its class where it is complete and has an answer."""
        ended = [branch for branch in self._branches if branch.id in self._ended]
        names = dict(zip((b.id for b in ended), await self._search.classes(ended), strict=True))
        return [
            (names[branch.id] if branch.complete else None) if branch.id in names else PENDING
            for branch in self._branches
        ]

    async def prefix(self) -> list[Vote]:
        """The votes of the first samples, up to the first that is pending."""
        return [
            vote
            for vote in itertools.takewhile(lambda vote: vote is not PENDING, await self.votes())
            if not isinstance(vote, Pending)
        ]

    async def note_tie(self) -> None:
        """Tell where several answers have the most votes; the first seen wins."""
        votes = await self.votes()
        counted = [vote for vote in votes if not isinstance(vote, Pending)]
        first = leaders(counted)
        if len(first) > 1 and len(counted) == len(votes):
            each = tally(counted)[0][1]
            self._search.note(
                f"tie: {len(first)} answers have {each} vote{'s' * (each > 1)} each, the first seen wins",
                answers=first,
            )

    async def _offer(self, branch: Branch, enough: Enough | None) -> bool:
        self._search.offer(branch)
        self._ended.add(branch.id)
        return enough is not None and await enough()

    def _prune(self, wave: list[Branch]) -> None:
        """Let go of what the vote does not wait for."""
        for branch in wave:
            if branch.id not in self._ended:
                branch.prune(DECIDED)


async def draw_until(
    search: Search, sure: Callable[[list[Vote]], bool], *, n: int, wave: int, temperature: float | None
) -> None:
    """Draw up to `n` samples, `wave` at a time, until `sure` holds for the votes of the first so many.

    It is asked for one sample more each time, in the order of branch ids, as if they came one by one: what
    a larger wave drew beyond that is offered too, where it ended.
    """
    samples = Samples(search, temperature)
    judged = 0

    async def enough() -> bool:
        nonlocal judged
        votes = await samples.prefix()
        while judged < len(votes):
            judged += 1
            if sure(votes[:judged]):
                search.note(f"votes agree after {judged} of at most {n} samples")
                return True
        return False

    while len(samples) < n and not search.budget.spent:
        if await samples.draw(min(wave, n - len(samples)), enough):
            return
    await samples.note_tie()
