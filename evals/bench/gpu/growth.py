"""Branches that grow through steps of runners, with block tables as a scheduler would lay them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ....engine.exec.runner import Runner
from ....engine.protocol import SeqId
from ....engine.sampling.params import SamplingParams
from ....engine.sched.plan import Copy, ModelPlan, Sample, Span


@dataclass(slots=True)
class Compared:
    """How far two runners were apart: the largest difference of logits, whether all had equal bits, and how
    many tokens differed; over `steps` steps."""

    difference: float = 0.0
    equal: bool = True
    tokens: int = 0
    steps: int = 0


@dataclass(slots=True)
class Branch:
    """Known tokens, the block table, and the positions whose keys are computed."""

    tokens: list[int]
    table: list[int] = field(default_factory=list)
    computed: int = 0


class Growth:
    """Sequences in the pool of `num_blocks` blocks that each of `runners` has. The first one's draws go on;
    the others are compared with it at each step, on every row that asks."""

    def __init__(self, runners: Sequence[Runner], num_blocks: int, block_size: int) -> None:
        self._runners = runners
        self._size = block_size
        self._free = list(range(num_blocks - 1, 0, -1))
        self._copies: list[Copy] = []
        self.branches: dict[SeqId, Branch] = {}
        self.compared = Compared()

    def open(self, tokens: Sequence[int]) -> SeqId:
        """A sequence whose tokens are known."""
        seq = SeqId(len(self.branches) + 1)
        self.branches[seq] = Branch(list(tokens))
        return seq

    def fork(self, seq: SeqId) -> SeqId:
        """A child that shares whole blocks and has a copy of the last one, which the next step makes."""
        parent = self.branches[seq]
        child = Branch(list(parent.tokens), computed=parent.computed)
        whole, rest = divmod(parent.computed, self._size)
        child.table = parent.table[:whole]
        if rest:
            child.table.append(self._free.pop())
            self._copies.append(Copy(parent.table[whole], child.table[-1]))
        found = SeqId(len(self.branches) + 1)
        self.branches[found] = child
        return found

    def append(self, seq: SeqId, token: int) -> None:
        """A token that nobody draws."""
        self.branches[seq].tokens.append(token)

    def step(
        self, seqs: Sequence[SeqId], params: SamplingParams | None = None, rows: int | None = None
    ) -> list[Tensor]:
        """Compute what is known of `seqs` and not computed, `rows` positions of each at most, and draw a
        token behind each with `params`; the first runner's logits fp32 [vocab] of their last rows."""
        spans = tuple(self._span(seq, params, rows) for seq in seqs)
        plan = ModelPlan("policy", spans, copies=tuple(self._copies))
        self._copies.clear()
        results = [runner.execute(plan) for runner in self._runners]
        first, *others = self._runners
        kept = [first.kept_logits(seq).clone() for seq in seqs]
        for runner in others:
            for seq, logits in zip(seqs, kept, strict=True):
                self._compare(logits, runner.kept_logits(seq))
        for other in results[1:]:
            pairs = zip(results[0].drawn, other.drawn, strict=True)
            self.compared.tokens += sum(mine.token != theirs.token for mine, theirs in pairs)
        self.compared.steps += 1
        for one in results[0].drawn:
            self.branches[one.seq].tokens.append(one.token)
        return kept

    def _compare(self, mine: Tensor, theirs: Tensor) -> None:
        difference = (mine - theirs).abs().amax().item()
        found = self.compared
        found.difference = max(found.difference, difference if difference == difference else float("inf"))
        found.equal = found.equal and torch.equal(mine, theirs)

    def _span(self, seq: SeqId, params: SamplingParams | None, rows: int | None) -> Span:
        branch = self.branches[seq]
        start, known = branch.computed, len(branch.tokens)
        stop = known if rows is None else min(known, start + rows)
        while len(branch.table) * self._size < stop:
            branch.table.append(self._free.pop())
        samples = ()
        if params is not None and stop == known:
            samples = (Sample(seq, 1000 + seq, known, params),)
        branch.computed = stop
        tokens = tuple(branch.tokens[start:stop])
        return Span(seq, start, tokens, tuple(branch.table), start, samples=samples, keep_logits=True)
