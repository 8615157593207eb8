"""Drafters that a test steers: on the oracle model, whose text never repeats, no real one is ever right."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from branchwise.engine.drafting.params import Ngram, Suffix
from branchwise.engine.sched.plan import Drawn, NotDrawn, Sample
from branchwise.engine.sched.request import ExtendRequest
from branchwise.engine.sched.sequence import Sequence as EngineSequence
from branchwise.engine.sched.speculation import Speculation

from .oracle import VOCAB, OracleRunner, Row


class SteeredDrafter:
    """Proposes the target's own next tokens, the first `right(k)` of them; wrong ones from there on."""

    def __init__(self, right: Callable[[int], int]) -> None:
        self._right = right

    def propose(self, sequence: EngineSequence, k: int) -> Sequence[int]:
        right = self._right(k)
        request, tokens = sequence.request, list(sequence.tokens)
        assert isinstance(request, ExtendRequest)
        params = request.params.sampling
        for place in range(k):
            row, rules = Row(tokens), request.rules
            target = row.logits
            if rules is not None:
                target = row.target(params, sequence.prompt_length, rules.end_ids.tolist())
            token = row.draw(target, sequence.seed, len(tokens), params)
            tokens.append(token if place < right else (token + 1) % VOCAB)
        return tokens[sequence.known :]

    def observe(self, sequence: EngineSequence) -> None:
        return None

    def forget(self, sequence: EngineSequence) -> None:
        return None


class RandomDrafter:
    """Proposals of any length from 0 to k: right ones, right ones with a wrong end, and plain noise."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._steered = SteeredDrafter(lambda k: rng.randint(0, k))

    def propose(self, sequence: EngineSequence, k: int) -> Sequence[int]:
        length = self._rng.randint(0, k)
        if self._rng.random() < 0.2:
            return [self._rng.randrange(VOCAB) for _ in range(length)]
        return self._steered.propose(sequence, length) if length else ()

    def observe(self, sequence: EngineSequence) -> None:
        return None

    def forget(self, sequence: EngineSequence) -> None:
        return None


class ErringRunner(OracleRunner):
    """A draft model that agrees with the oracle but for every third position."""

    def _draw(self, row: Row, sample: Sample) -> Drawn | NotDrawn:
        found = super()._draw(row, sample)
        if sample.position % 3 or isinstance(found, NotDrawn):
            return found
        return found._replace(token=(found.token + 1) % VOCAB)


def steer(speculation: Speculation, drafter: SteeredDrafter | RandomDrafter) -> None:
    """Let `drafter` propose for every method."""
    drafters = speculation.drafters
    drafters[Ngram] = drafters[Suffix] = drafter
