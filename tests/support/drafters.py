"""Drafters that a test steers: on the oracle model, whose text never repeats, no real one is ever right."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from branchwise.engine.drafting.cost import StepCost
from branchwise.engine.drafting.params import Ngram, Suffix
from branchwise.engine.sampling.drafting import Drafted
from branchwise.engine.sched.plan import Drawn, NotDrawn, Sample
from branchwise.engine.sched.request import ExtendRequest
from branchwise.engine.sched.sequence import Sequence as EngineSequence
from branchwise.engine.sched.speculation import Speculation
from msgspec.structs import replace

from .oracle import VOCAB, OracleRunner, Row


class SteeredDrafter:
    """Proposes the target's own next tokens, the first `right(k)` of them; wrong ones from there on."""

    def __init__(self, right: Callable[[int], int]) -> None:
        self._right = right

    def propose(self, sequence: EngineSequence, k: int, paths: int) -> Sequence[Sequence[int]]:
        return [steered_path(sequence, k, self._right(k))]

    def observe(self, sequence: EngineSequence) -> None:
        return None

    def forget(self, sequence: EngineSequence) -> None:
        return None


class TreeDrafter(SteeredDrafter):
    """Proposes paths whose first `right[i]` tokens are the target's own, the others wrong in a way of their
    own."""

    def __init__(self, right: Sequence[int]) -> None:
        super().__init__(lambda k: k)
        self._rights = right

    def propose(self, sequence: EngineSequence, k: int, paths: int) -> Sequence[Sequence[int]]:
        rights = self._rights[:paths]
        return [steered_path(sequence, k, min(right, k), 1 + i) for i, right in enumerate(rights)]


class RandomDrafter(SteeredDrafter):
    """Proposals of any number and length: right ones, right ones with a wrong end, and plain noise."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(lambda k: k)
        self._rng = rng

    def propose(self, sequence: EngineSequence, k: int, paths: int) -> Sequence[Sequence[int]]:
        return [self._path(sequence, self._rng.randint(0, k)) for _ in range(self._rng.randint(1, paths))]

    def _path(self, sequence: EngineSequence, length: int) -> list[int]:
        rng = self._rng
        if rng.random() < 0.2:
            return [rng.randrange(VOCAB) for _ in range(length)]
        return steered_path(sequence, length, rng.randint(0, length), rng.randint(1, 3))


def steered_path(sequence: EngineSequence, k: int, right: int, wrong: int = 1) -> list[int]:
    """The target's own next `k` tokens, those from `right` on off by `wrong`."""
    request, tokens = sequence.request, list(sequence.tokens)
    assert isinstance(request, ExtendRequest)
    params = request.params.sampling
    for place in range(k):
        row, rules = Row(tokens), request.rules
        target = row.logits
        if rules is not None:
            target = row.target(params, sequence.prompt_length, rules.end_ids.tolist())
        token = row.draw(target, sequence.seed, len(tokens), params)
        tokens.append(token if place < right else (token + wrong) % VOCAB)
    return tokens[sequence.known :]


class ErringRunner(OracleRunner):
    """A draft model that agrees with the oracle but at every third position (`every`): there what it should
    have written is its runner-up."""

    every = 3

    def _draw(self, row: Row, sample: Sample) -> Drawn | NotDrawn:
        found = super()._draw(row, sample)
        if sample.position % self.every or isinstance(found, NotDrawn):
            return found
        right, told = found.token, found.drafted
        if told is not None and told.runners_up:
            found = replace(found, drafted=told._replace(runners_up=[right]))
        return replace(found, token=(right + 1) % VOCAB)


class SkewedRunner(OracleRunner):
    """A draft model with logits of its own, some way off the oracle's: `skew` 0 is the oracle's own."""

    skew = 1.5

    def _draw(self, row: Row, sample: Sample) -> Drawn | NotDrawn:
        other = Row((*row.tokens, -1)).logits
        row.logits = [ours + self.skew * theirs / 4.0 for ours, theirs in zip(row.logits, other, strict=True)]
        return super()._draw(row, sample)


class HopelessDrafter(SteeredDrafter):
    """Proposes tokens that a test has banned."""

    def __init__(self, banned: Sequence[int]) -> None:
        super().__init__(lambda k: 0)
        self._banned = banned

    def propose(self, sequence: EngineSequence, k: int, paths: int) -> Sequence[Sequence[int]]:
        return [[token] * k for token in self._banned[:paths]]


class HopelessRunner(OracleRunner):
    """A draft model that is sure of tokens that a test has banned, the first of `banned` before the
    second."""

    banned = (VOCAB - 1, VOCAB - 2)

    def _draw(self, row: Row, sample: Sample) -> Drawn | NotDrawn:
        first, second = self.banned
        certain = [float(token == first) for token in range(VOCAB)]
        return Drawn(sample.seq, first, 0.0, drafted=Drafted(certain, [second]))


class Untimed(StepCost):
    """Stays what was assumed, however long steps take."""

    def observe(self, rows: int, seconds: float) -> None:
        return None


def steer(speculation: Speculation, drafter: SteeredDrafter) -> None:
    """Let `drafter` propose for every method but a draft model."""
    for drafters in (speculation.drafters, speculation.lone_drafters):
        drafters[Ngram] = drafters[Suffix] = drafter
