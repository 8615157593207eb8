"""Monte Carlo tree search over steps."""

import enum
import math
from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from .base import Branch, Needs, Search
from .growth import Leaf, LeafState, Scoring
from .mcts_tree import (
    Backup,
    TreeNode,
    back_up,
    best_child,
    close,
    hold,
    principal_leaf,
    puct,
    release,
    select_leaf,
    softmax,
    uct,
)
from .tree import Count, TreeStrategy

UNKNOWN = 0.5
"""Value of a state that nothing could tell anything of, not even of its parent."""


class SelectionRule(enum.StrEnum):
    """AlphaZero's rule with a prior, or the upper confidence bound for trees."""

    PUCT = "puct"
    UCT = "uct"


class Evaluation(enum.StrEnum):
    """A leaf's value: the step verifier's score, or the last check of one rollout to the answer."""

    SCORE = "score"
    ROLLOUT = "rollout"


class Prior(enum.StrEnum):
    """P of a child among its siblings: by the mean log-probability of its step's tokens or of all its tokens,
    or the same for all."""

    STEP = "step"
    SEQUENCE = "sequence"
    UNIFORM = "uniform"


class Mcts(TreeStrategy, tag="mcts", kw_only=True, frozen=True):
    """Monte Carlo tree search over steps, by PUCT or by UCT.

    PUCT is AlphaZero's (Silver et al. 2018, doi:10.1126/science.aar6404), over reasoning steps as in OpenR
    (Wang et al. 2024, arXiv 2410.09671); UCT is Kocsis and Szepesvari's (2006), with rollouts to the answer
    as in rStar (Qi et al. 2024, arXiv 2408.06195).

    One of `rollouts` simulations:
    1. Select: from the root to the child that `rule` asks for, down to a leaf. PUCT is
       Q + c P sqrt(N) / (1 + n) with c = log((N + c_base + 1) / c_base) + c_init; UCT is
       Q + w sqrt(ln N / n), children without a visit first.
    2. Expand: a leaf that was visited before gets `width` children of one step each, and the first by the
       rule is the leaf now. Of children with the same tokens one is kept.
    3. Evaluate the leaf as `evaluate` says.
    4. Back up: its value goes to it and, times `discount` for each edge, to every node above. Q is the mean
       of what came, or the best (`backup`).

    A path that ends is offered then and there, keeps its value, and is visited once; what has nothing left to
    explore below is not selected again and gives its KV back, and the search ends once that is the root.
    Where nothing has finished at the end, the most visited path goes on to its answer.

    `parallel` simulations run side by side: each under way counts as a visit that gave 0 (virtual loss).
    """

    needs = Needs(scores=True)

    rollouts: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
    width: Count = 4
    rule: SelectionRule = SelectionRule.PUCT
    evaluate: Evaluation = Evaluation.SCORE
    prior: Prior = Prior.STEP
    backup: Backup = Backup.MEAN
    discount: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    c_base: Annotated[float, Meta(gt=0.0)] = 19652.0
    c_init: Annotated[float, Meta(ge=0.0)] = 1.25
    w: Annotated[float, Meta(ge=0.0)] = math.sqrt(2.0)
    parallel: Count = 1

    async def run(self, search: Search) -> None:
        tree = GrowingTree(self, search)
        simulations = 0
        while simulations < self.rollouts and not search.budget.spent:
            held = tree.select(min(self.parallel, self.rollouts - simulations))
            if not held:
                search.note("mcts: the whole tree is explored", simulations=simulations)
                break
            leaves = await tree.expand(held)
            values = await tree.evaluate(leaves)
            tree.back_up(held, leaves, values)
            simulations += len(held)
        await tree.answer()

    def asks(self, parent: TreeNode, child: TreeNode) -> float:
        """How much the rule wants the child; a simulation under way counts as a visit."""
        q, n, total = child.value(self.backup), child.visits + child.pending, parent.visits + parent.pending
        if self.rule == SelectionRule.PUCT:
            return puct(q, child.prior, n, total, c_base=self.c_base, c_init=self.c_init)
        return uct(q, n, total, w=self.w)

    def requirements(self) -> Needs:
        return super().requirements().joined(Needs(step_scores=self.evaluate == Evaluation.SCORE))


class GrowingTree:
    """The tree of one search, and the branches that it stands for."""

    def __init__(self, strategy: Mcts, search: Search) -> None:
        self._strategy = strategy
        self._search = search
        self._root = TreeNode(leaf=Leaf(search.root, LeafState.OPEN, None))
        self._cut: list[Leaf] = []
        scoring = Scoring.ALL if strategy.evaluate == Evaluation.SCORE else Scoring.NONE
        self._growth = strategy.growth(search, scoring=scoring)

    def select(self, count: int) -> list[TreeNode]:
        """Up to `count` leaves, each held for one simulation; fewer where no more can be selected."""
        held: list[TreeNode] = []
        while len(held) < count and (leaf := select_leaf(self._root, self._strategy.asks)) is not None:
            hold(leaf)
            held.append(leaf)
        return held

    async def expand(self, held: Sequence[TreeNode]) -> list[TreeNode]:
        """The leaves to evaluate: the held ones, or the first child of those that had been visited. One that
        no child grew from is left out."""
        visited = [node for node in held if node.visits or node is self._root]
        branches = [
            child for node in visited for child in self._growth.fork(node.leaf.branch, self._strategy.width)
        ]
        grown = await self._growth.grow(branches)
        self._cut.extend(leaf for leaf in grown if leaf.cut)
        for node in visited:
            children = [leaf for leaf in grown if leaf.branch.parent is node.leaf.branch and not leaf.cut]
            node.attach(children, priors([leaf.branch for leaf in children], self._strategy.prior))
            if not children and not self._search.budget.spent:
                self._close(node)
        reached = [node if node not in visited else self._first(node) for node in held]
        return [node for node in reached if node is not None]

    async def evaluate(self, leaves: Sequence[TreeNode]) -> list[float | None]:
        """The value of each leaf; None where budget or failure kept it from one."""
        if self._strategy.evaluate == Evaluation.SCORE:
            return [self._known(node, node.leaf.value) for node in leaves]
        probes = {id(node): node.leaf.branch.fork(1)[0] for node in leaves if node.leaf.open}
        ended = {leaf.branch.id: leaf for leaf in await self._growth.finish(list(probes.values()))}
        self._cut.extend(leaf for leaf in ended.values() if leaf.cut)
        values: list[float | None] = []
        for node in leaves:
            end = ended.get(probes[id(node)].id) if node.leaf.open else node.leaf
            values.append(None if end is None or end.cut else self._known(node, end.value))
        return values

    def back_up(
        self, held: Sequence[TreeNode], leaves: Sequence[TreeNode], values: Sequence[float | None]
    ) -> None:
        """End the simulations: what they found goes up, and what has ended is closed."""
        for node in held:
            release(node)
        for leaf, value in zip(leaves, values, strict=True):
            if value is None:
                continue
            back_up(leaf, value, self._strategy.discount)
            self._search.note("mcts: simulated", leaf=leaf.leaf.branch.id, value=value, visits=leaf.visits)
            if not leaf.leaf.open:
                self._close(leaf)

    async def answer(self) -> None:
        """Where nothing has finished, let the most visited path go on to its answer."""
        await self._growth.ensure_answer(self._cut, self._by_visits())

    def _by_visits(self) -> Iterator[Branch]:
        """The ends of the open paths, the most visited first, and the root at last. What was given out is
        closed: this is the end of the search."""
        while not self._root.closed:
            best = principal_leaf(self._root, self._strategy.backup)
            yield best.leaf.branch
            close(best)
        yield self._search.root

    def _first(self, node: TreeNode) -> TreeNode | None:
        return best_child(node, self._strategy.asks) if node.children else None

    def _known(self, node: TreeNode, value: float | None) -> float:
        """The value, its parent's where nothing could tell."""
        if value is not None:
            return value
        parent = node.parent
        return parent.value(self._strategy.backup) if parent is not None and parent.visits else UNKNOWN

    def _close(self, node: TreeNode) -> None:
        for closed in close(node):
            if closed is not self._root:
                self._growth.prune(closed.leaf.branch, "explored")


def priors(children: Sequence[Branch], prior: Prior) -> list[float]:
    """P of each child: its share of the probabilities per token, the same for all where one has none."""
    logits = [_mean_logprob(child, prior) for child in children]
    known = [logit for logit in logits if logit is not None]
    if prior == Prior.UNIFORM or len(known) < len(logits):
        known = [0.0] * len(logits)
    return softmax(known)


def _mean_logprob(child: Branch, prior: Prior) -> float | None:
    if prior == Prior.SEQUENCE:
        return child.mean_logprob
    behind = 0 if child.parent is None else child.parent.depth
    logprobs = [value for step in child.steps[behind:] for value in step.logprobs]
    return math.fsum(logprobs) / len(logprobs) if logprobs else None
