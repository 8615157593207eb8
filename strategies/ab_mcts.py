"""Adaptive branching Monte Carlo tree search: wider or deeper, as the scores so far suggest."""

import enum
from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from ..engine.sampling.params import SamplingParams
from ..verifiers.revision import REFINE
from .ab_tree import AbNode, by_score, choose, exhaust
from .arm_posterior import Belief
from .base import Branch, Needs, Search, Select, Strategy
from .growth import Growth, Leaf, LeafState
from .revision import open_revision


class Unit(enum.StrEnum):
    """What a node of the tree is: a whole answer, whose children refine it, or one step."""

    ANSWER = "answer"
    STEP = "step"


class AbMcts(Strategy, tag="ab_mcts", kw_only=True, frozen=True):
    """AB-MCTS-A, adaptive branching Monte Carlo tree search (Inoue et al. 2025, arXiv 2503.04412).

    One expansion: from the root down, each node draws from what is believed of its GEN arm (a new child) and
    of its CONT arm (going on from the children it has), by Thompson sampling; GEN makes a child here, CONT
    goes to the child whose own arm draws most. The new child's score in [0, 1] goes to GEN of its parent, and
    to CONT and the child's arm of every ancestor. `posterior`: normal-inverse-chi-squared (m 0, kappa 1,
    nu 1, tau^2 .1), or Beta(.5, .5).

    `unit` answer, the paper's: a child of the root is a whole new answer, a child of an answer refines it,
    with that answer in its prompt; the score is the last check's. `unit` step: a child is one more step, and
    the score the step verifier's; an answer is a leaf, with the last check's score.

    `expansions` children are made at most, `batch` side by side: these are chosen before any of them has
    scored, and tell their scores in the order of their choice. A large batch makes the tree wide. A score
    that is not known tells nothing. Where nothing has finished at the end, the path of the highest score goes
    on to its answer.
    """

    needs = Needs(scores=True)

    expansions: Annotated[int, Meta(ge=1, le=1_000_000)] = 32
    batch: Annotated[int, Meta(ge=1, le=5)] = 1
    unit: Unit = Unit.ANSWER
    posterior: Belief = Belief.GAUSSIAN
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    select: Select = Select.MAX_SCORE
    stop_on_verified: bool = True

    async def run(self, search: Search) -> None:
        growth = Growth(search, sampling=self._sampling(), dedup=False)
        expand = Answers(search, growth) if self.unit == Unit.ANSWER else Steps(growth)
        root = AbNode.of(Belief(self.posterior), state=search.root)
        expansions = 0
        while expansions < self.expansions and not search.budget.spent:
            wanted = min(self.batch, self.expansions - expansions)
            choices = [choose(root, search.root.rng) for _ in range(wanted)]
            parents = [node for node in choices if node is not None]
            if not parents:
                search.note("ab_mcts: nothing is left to expand", expansions=expansions)
                break
            children = await expand(parents)
            for parent, child in zip(parents, children, strict=True):
                if child is not None:
                    self._tell(search, parent, child)
            expansions += len(parents)
        await growth.ensure_answer(expand.cut, [node.state for node in (*by_score(root), root)])

    def requirements(self) -> Needs:
        return super().requirements().joined(Needs(step_scores=self.unit == Unit.STEP))

    def selection(self) -> Select:
        return self.select

    def stops_on_verified(self) -> bool:
        return self.stop_on_verified

    def _tell(self, search: Search, parent: AbNode, child: "Child") -> None:
        node = parent.add(Belief(self.posterior), child.branch, child.score)
        if child.ended:
            exhaust(node)
        search.note("ab_mcts: expanded", of=parent.state.id, child=child.branch.id, score=child.score)

    def _sampling(self) -> SamplingParams | None:
        return None if self.temperature is None else SamplingParams(temperature=self.temperature)


class Child(msgspec.Struct, frozen=True, eq=False):
    """What one expansion made. `ended`: it can have no children."""

    branch: Branch
    score: float | None
    ended: bool


class Expansion(Protocol):
    """Makes one child of each given node, side by side; None for one of which nothing came. `cut` are the
    paths that the budget cut."""

    cut: list[Leaf]

    async def __call__(self, parents: Sequence[AbNode]) -> list[Child | None]: ...


class Answers:
    """`Expansion` by whole answers; a node whose answer leaves no room in the prompt is exhausted."""

    def __init__(self, search: Search, growth: Growth) -> None:
        self.cut: list[Leaf] = []
        self._search = search
        self._growth = growth

    async def __call__(self, parents: Sequence[AbNode]) -> list[Child | None]:
        begun = [await self._begin(parent) for parent in parents]
        grown = await self._growth.finish([branch for branch in begun if branch is not None])
        self.cut.extend(leaf for leaf in grown if leaf.cut)
        children = {leaf.branch.id: Child(leaf.branch, leaf.value, False) for leaf in grown if not leaf.cut}
        return [None if branch is None else children.get(branch.id) for branch in begun]

    async def _begin(self, parent: AbNode) -> Branch | None:
        if parent.parent is None:
            return parent.state.fork(1)[0]
        branch = await open_revision(self._search, [parent.state], REFINE)
        if branch is None:
            exhaust(parent)
        return branch


class Steps:
    """`Expansion` by single steps. A path of the tokens of an earlier one is no second vote, but tells its
    score again."""

    def __init__(self, growth: Growth) -> None:
        self.cut: list[Leaf] = []
        self._growth = growth
        self._ended: dict[tuple[int, ...], float | None] = {}

    async def __call__(self, parents: Sequence[AbNode]) -> list[Child | None]:
        branches: list[Branch] = [parent.state.fork(1)[0] for parent in parents]
        grown = {leaf.branch.id: leaf for leaf in await self._growth.grow(branches)}
        self.cut.extend(leaf for leaf in grown.values() if leaf.cut)
        for leaf in grown.values():
            if leaf.state is LeafState.FINISHED:
                self._ended[tuple(leaf.branch.tokens)] = leaf.value
        return [self._child(branch, grown.get(branch.id)) for branch in branches]

    def _child(self, branch: Branch, leaf: Leaf | None) -> Child | None:
        if leaf is not None:
            return None if leaf.cut else Child(branch, leaf.value, not leaf.open)
        tokens = tuple(branch.tokens)
        return Child(branch, self._ended[tokens], True) if tokens in self._ended else None
