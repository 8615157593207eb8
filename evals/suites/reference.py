"""The embedded suites: Countdown and arithmetic from the held-out side of their generators."""

import random
from collections.abc import Callable, Sequence

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer_type import AnswerType
from ..reference.tasks import arithmetic, countdown
from ..reference.tasks.trace import Split
from . import grading
from .base import Gold, Grade, Sample
from .expressions import grade_expression

DEFAULT_SIZE = 600
REPEATS_MAX = 20_000
"""Draws in a row without a new problem after which a generator is taken to have no more."""


class CountdownSuite(msgspec.Struct, frozen=True):
    """Countdown with `counts` numbers, in turn; any expression that uses each number once and makes the
    target is right. The level is how many numbers there are."""

    name: str
    counts: tuple[int, ...]
    oracle: bool = True

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        def sample(instance: countdown.Instance) -> Sample:
            numbers = ",".join(map(str, instance.numbers))
            return Sample(
                id=f"countdown:{numbers}>{instance.target}",
                problem=countdown.sentence(instance),
                gold=Gold(AnswerType.EXPRESSION, str(instance.target)),
                level=str(len(instance.numbers)),
                meta={"numbers": numbers},
            )

        return _distinct(
            self.name,
            lambda rng, count: sample(countdown.generate(rng, Split.HELD_OUT, count)),
            self.counts,
            limit,
            seed,
        )

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        return grade_expression(sample.meta["numbers"], int(sample.gold.value), answer)


class ArithmeticSuite(msgspec.Struct, frozen=True):
    """Sums of products of `counts` numbers, in turn; the gold is the integer, the level how many numbers
    there are."""

    name: str
    counts: tuple[int, ...]
    oracle: bool = True

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        def sample(instance: arithmetic.Instance) -> Sample:
            return Sample(
                id=f"arithmetic:{instance.expression}",
                problem=arithmetic.sentence(instance),
                gold=Gold(AnswerType.INTEGER, str(arithmetic.true_value(instance))),
                level=str(instance.num_numbers),
            )

        return _distinct(
            self.name,
            lambda rng, count: sample(arithmetic.generate(rng, Split.HELD_OUT, count)),
            self.counts,
            limit,
            seed,
        )

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        return grading.grade(sample, answer)


def _distinct(
    name: str,
    draw: Callable[[random.Random, int], Sample],
    counts: tuple[int, ...],
    limit: int | None,
    seed: int,
) -> list[Sample]:
    """Distinct samples, the counts of numbers in turn; a larger limit only adds at the end. Raises
    `UsageError` for a limit beyond what there is."""
    rng = random.Random(seed)
    found: dict[str, Sample] = {}
    repeats = 0
    while len(found) < (DEFAULT_SIZE if limit is None else limit):
        sample = draw(rng, counts[len(found) % len(counts)])
        repeats = repeats + 1 if sample.id in found else 0
        if repeats == REPEATS_MAX:
            raise UsageError(
                f"limit {limit}: suite {name!r} has about {len(found)} different problems; "
                f"give {len(found)} or fewer"
            )
        found.setdefault(sample.id, sample)
    return list(found.values())
