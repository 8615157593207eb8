"""How tree strategies grow their branches: a step each, its score, and what becomes of a path that ends."""

import enum
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from .base import Branch, Search

_OPEN = (Stop.MARK, Stop.LENGTH)
GREEDY = SamplingParams(temperature=0.0)


class LeafState(enum.Enum):
    """Whether a leaf can grow (`OPEN`), is at its end (`FINISHED`), or was cut by the budget (`CUT`)."""

    OPEN = enum.auto()
    FINISHED = enum.auto()
    CUT = enum.auto()


class Scoring(enum.Enum):
    """Which open leaves the step verifier scores: all, those with a sibling that could be chosen instead (one
    without keeps its parent's value), or none."""

    ALL = enum.auto()
    RIVALS = enum.auto()
    NONE = enum.auto()


class Leaf(msgspec.Struct, frozen=True, eq=False):
    """The end of one path behind its last step.

    `value`: of an open leaf the step verifier's score, of a finished one the last check's, of a cut one its
    parent's; None where nothing could tell.
    """

    branch: Branch
    state: LeafState
    value: float | None

    @property
    def open(self) -> bool:
        return self.state is LeafState.OPEN

    @property
    def cut(self) -> bool:
        return self.state is LeafState.CUT


def best_first(leaves: Iterable[Leaf]) -> list[Leaf]:
    """By value, the highest first and None last; ties by branch id."""
    return sorted(leaves, key=lambda leaf: (leaf.value is None, -(leaf.value or 0.0), path_of(leaf.branch)))


def path_of(branch: Branch) -> tuple[int, ...]:
    """The branch id as child indices: 0.10 comes behind 0.9."""
    return tuple(map(int, branch.id.split(".")))


class Growth:
    """Grows the branches of one search, and keeps what each path of it is due.

    A step that ends thinking goes on to the answer. A path at its end gets the last check, is offered at
    once and gives its KV back: it is never extended, revived or counted twice. Two paths of the same tokens
    are one vote: the later one is pruned, not offered. Where the last check cannot tell, the step
    verifier's score stands.

    `sampling` None: the model's own. `lookahead`: greedy steps that are rolled behind a new step before it
    is scored, and thrown away; they are charged. `dedup`: of siblings whose steps are the same tokens one is
    scored, or brought to its answer, and the others are pruned. `scoring`: which open leaves get a score.
    `finished` counts the paths that came to their end, duplicates among them: each took its place in the
    search.
    """

    def __init__(
        self,
        search: Search,
        *,
        sampling: SamplingParams | None,
        lookahead: int = 0,
        dedup: bool = True,
        scoring: Scoring = Scoring.ALL,
    ) -> None:
        self.finished = 0
        self._search = search
        self._sampling = sampling
        self._lookahead = lookahead
        self._dedup = dedup
        self._scoring = scoring
        self._children: dict[str, list[Branch]] = {}
        self._offered: dict[tuple[int, ...], str] = {}

    def fork(self, branch: Branch, n: int) -> list[Branch]:
        """`n` children. The parent lives, and holds no KV of its own, as long as one of them does."""
        children = branch.fork(n)
        self._children.setdefault(branch.id, []).extend(children)
        return children

    async def grow(self, branches: Sequence[Branch]) -> list[Leaf]:
        """Let each branch take one step, side by side: leaves of all that live, by branch id.

        Branches that failed are left out, and so are duplicates. Finished leaves were offered.
        """
        stops: dict[str, Stop] = {}

        async def step(branch: Branch) -> None:
            stops[branch.id] = (await branch.extend(Until.STEP, sampling=self._sampling)).stop

        await self._each(branches, step)
        going = [branch for branch in branches if branch.live]
        cut = [branch for branch in going if stops[branch.id] is Stop.BUDGET]
        opened = self._distinct(branch for branch in going if stops[branch.id] in _OPEN)
        ending = [branch for branch in going if stops[branch.id] not in _OPEN and branch not in cut]
        distinct = self._distinct(ending)
        self.finished += len(ending) - len(distinct)
        ended = await self._end(distinct)
        rivals = [*opened, *(leaf.branch for leaf in ended if leaf.branch.verified is not False)]
        scored = await self._score(opened, Counter(path_of(branch)[:-1] for branch in rivals))
        for branch in branches:
            self._free_ancestors(branch)
        leaves = [*(Leaf(branch, LeafState.CUT, branch.score) for branch in cut), *ended, *scored]
        return sorted(leaves, key=lambda leaf: path_of(leaf.branch))

    async def finish(self, branches: Sequence[Branch]) -> list[Leaf]:
        """Let each branch go on to its answer, side by side: leaves of all that did not fail, by branch id.

        Finished ones were offered; one of the tokens of an earlier one is among them, but not offered again.
        """
        cut: set[str] = set()

        async def finish(branch: Branch) -> None:
            step = await branch.extend(Until.ANSWER, sampling=self._sampling)
            if step.stop is not Stop.BUDGET and await self._reach_answer(branch):
                await self._check(branch)
            else:
                cut.add(branch.id)

        leaves: list[Leaf] = []
        async with self._search.each(branches, finish) as done:
            async for branch in done:
                if branch.id in cut:
                    leaves.append(Leaf(branch, LeafState.CUT, branch.score))
                    continue
                self.finished += 1
                self._offer(branch)
                leaves.append(Leaf(branch, LeafState.FINISHED, branch.score))
        return sorted(leaves, key=lambda leaf: path_of(leaf.branch))

    async def ensure_answer(self, cut: Iterable[Leaf], branches: Iterable[Branch]) -> None:
        """Where no complete path was offered, conclude what was cut; where nothing was, let the first of the
        open `branches` go on to its answer from a child of its own, or conclude it where the budget is spent.
        The next one gets its turn where that fails."""
        incumbent = self._search.incumbent
        if incumbent is not None and incumbent.complete:
            return
        offered = len(self._offered)
        await self.conclude(cut)
        for branch in branches:
            if len(self._offered) > offered:
                return
            if branch.live and not self._search.budget.spent:
                await self.conclude(leaf for leaf in await self.finish(branch.fork(1)) if leaf.cut)
            else:
                await self.conclude([Leaf(branch, LeafState.CUT, branch.score)])

    def prune(self, branch: Branch, reason: str) -> None:
        """Prune the branch, and every ancestor that has no live child left."""
        branch.prune(reason)
        self._free_ancestors(branch)

    def prune_all(self, leaves: Iterable[Leaf], reason: str) -> None:
        """Prune what did not come through a selection."""
        for leaf in leaves:
            self.prune(leaf.branch, reason)

    async def conclude(self, leaves: Iterable[Leaf]) -> None:
        """Make what was left open or cut answer, and offer it: one after the other, the best first, since
        side by side they would share one reserve and none might come to its end. Once the budget is spent,
        those without a token are passed over."""
        for leaf in best_first(leaves):
            branch = leaf.branch
            if not branch.live or (not branch.tokens and self._search.budget.spent):
                continue
            async with self._search.each([branch], self._answer) as done:
                async for answered in done:
                    self._offer(answered)

    def _free_ancestors(self, branch: Branch) -> None:
        parent = branch.parent
        while parent is not None and parent.id in self._children:
            if any(child.live for child in self._children[parent.id]):
                return
            del self._children[parent.id]
            if parent is not self._search.root:
                parent.prune("no child left")
            parent = parent.parent

    async def _each(self, branches: Sequence[Branch], fn: Callable[[Branch], Awaitable[None]]) -> None:
        async with self._search.each(branches, fn) as done:
            async for _ in done:
                continue

    async def _end(self, branches: Sequence[Branch]) -> list[Leaf]:
        """Bring paths to their answers and offer them."""
        cut: set[str] = set()

        async def end(branch: Branch) -> None:
            if await self._reach_answer(branch):
                await self._check(branch)
            else:
                cut.add(branch.id)

        leaves: list[Leaf] = []
        async with self._search.each(branches, end) as done:
            async for branch in done:
                if branch.id in cut:
                    leaves.append(Leaf(branch, LeafState.CUT, branch.score))
                    continue
                self.finished += 1
                if self._offer(branch):
                    leaves.append(Leaf(branch, LeafState.FINISHED, branch.score))
        return leaves

    async def _reach_answer(self, branch: Branch) -> bool:
        """False where the budget cut the answer. A full context is the end of a path."""
        if branch.complete:
            return True
        if branch.thinking:
            step = await branch.conclude()
        else:
            step = await branch.extend(Until.ANSWER, sampling=self._sampling)
        return step.stop is not Stop.BUDGET

    async def _answer(self, branch: Branch) -> None:
        await branch.conclude()
        await self._check(branch)

    async def _check(self, branch: Branch) -> None:
        """The last check of a path at its end."""
        checked = await branch.evaluate()
        if checked.value is None and self._search.step_verifier is not self._search.verifier:
            await branch.evaluate(self._search.step_verifier)

    async def _score(self, branches: Sequence[Branch], families: Counter[tuple[int, ...]]) -> list[Leaf]:
        """Score open branches; `families`: children that may be chosen, by their parent's path."""
        if self._scoring is Scoring.NONE:
            return [Leaf(branch, LeafState.OPEN, None) for branch in branches]
        values: dict[str, float | None] = {}

        async def score(branch: Branch) -> None:
            if self._scoring is Scoring.RIVALS and families[path_of(branch)[:-1]] == 1:
                values[branch.id] = branch.score
                return
            values[branch.id] = (await branch.evaluate(self._search.step_verifier)).value
            if self._lookahead:
                values[branch.id] = await self._look_ahead(branch)

        await self._each(branches, score)
        return [Leaf(branch, LeafState.OPEN, values[branch.id]) for branch in branches if branch.live]

    async def _look_ahead(self, branch: Branch) -> float | None:
        """The step verifier's score behind `lookahead` greedy steps (Snell et al. 2024, arXiv 2408.03314)."""
        (probe,) = branch.fork(1)
        try:
            for _ in range(self._lookahead):
                step = await probe.extend(Until.STEP, sampling=GREEDY)
                if step.stop not in (Stop.MARK, Stop.LENGTH):
                    break
            return (await probe.evaluate(self._search.step_verifier)).value
        finally:
            probe.prune("lookahead")

    def _distinct(self, branches: Iterable[Branch]) -> list[Branch]:
        """Of siblings with the same tokens the first, since what follows is drawn alike; all without
        `dedup`."""
        if not self._dedup:
            return list(branches)
        first: dict[tuple[tuple[int, ...], ...], Branch] = {}
        for branch in sorted(branches, key=path_of):
            kept = first.setdefault((path_of(branch)[:-1], tuple(branch.tokens)), branch)
            if kept is not branch:
                self.prune(branch, f"duplicate of {kept.id}")
        return list(first.values())

    def _offer(self, branch: Branch) -> bool:
        """Offer a path at its end, unless one of the same tokens was; whether it was offered."""
        voted = self._offered.setdefault(tuple(branch.tokens), branch.id)
        if voted != branch.id:
            self.prune(branch, f"duplicate of {voted}")
            return False
        self._search.offer(branch)
        self.prune(branch, "finished" if branch.complete else "cut")
        return True
