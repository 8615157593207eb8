"""Game of 24: four numbers, each used once, make 24."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer_type import AnswerType
from ..reference.tasks import countdown
from .base import Gold, Grade, Sample, drawn
from .datasets import distinct
from .expressions import grade_expression
from .files import Source, read_rows, text_field

TARGET = 24
LEVELS = 5

_SOURCE = Source(folder="game24", file="24.csv")
_WHOLE = re.compile(r"[0-9]{1,9}")
_RESULT = re.compile(r"\s*=\s*-?[\d./]+\s*$")


class Game24Suite(msgspec.Struct, frozen=True):
    """The puzzles in the order of the file, which is from easy to hard for people; the level is the fifth of
    the file that a puzzle is in, and the id counts rows from 0 as papers do (they use 900 to 999)."""

    name: str
    data: Path | None = None
    oracle: bool = True

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        rows = read_rows(self.name, _SOURCE, self.data)
        samples = []
        for place, row in enumerate(rows):
            where = f"{self.name}-{place}"
            numbers = _numbers(text_field(row, ["Puzzles"], where), where)
            samples.append(
                Sample(
                    id=where,
                    problem=countdown.sentence(countdown.Instance(numbers, TARGET)),
                    gold=Gold(AnswerType.EXPRESSION, str(TARGET)),
                    level=str(1 + place * LEVELS // len(rows)),
                    meta={"numbers": ",".join(map(str, numbers))},
                )
            )
        return drawn(distinct(self.name, samples), limit, seed)

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        """What a closing "= 24" claims is passed over, as in the scripts of the papers."""
        expression = None if answer is None else _RESULT.sub("", answer)
        return grade_expression(sample.meta["numbers"], TARGET, expression)


def _numbers(puzzle: str, where: str) -> tuple[int, ...]:
    words = puzzle.split()
    if len(words) != 4 or not all(_WHOLE.fullmatch(word) for word in words):
        raise UsageError(f"{where}: {puzzle!r} is no puzzle of four numbers")
    return tuple(sorted(map(int, words)))
