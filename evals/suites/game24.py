"""Game of 24: four numbers, each used once, make 24."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer_type import AnswerType
from ..reference.tasks import countdown, countdown_replay
from .base import Gold, Grade, Sample, drawn
from .datasets import distinct
from .files import Source, field, read_rows

TARGET = 24
LEVELS = 5

_SOURCE = Source(folder="game24", file="24.csv")
_SIGNS = str.maketrans({"×": "*", "⋅": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")"})
_COMMANDS = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;! ]|\$"), ""),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
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
            numbers = _numbers(str(field(row, ["Puzzles"], where)), where)
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
        return grade_expression(sample, answer)


def grade_expression(sample: Sample, answer: str | None) -> Grade:
    """Whether `answer` uses each number of the sample once and makes its target. LaTeX signs are read; what a
    closing "= 24" claims is passed over, as in the scripts of the papers."""
    if answer is None:
        return Grade(False, "no answer")
    numbers, target = tuple(map(int, sample.meta["numbers"].split(","))), int(sample.gold.value)
    expression = _plain(_RESULT.sub("", answer))
    right = countdown_replay.check_answer(countdown.Instance(numbers, target), expression)
    return Grade(right, "" if right else f"not an expression of {numbers} that makes {target}")


def _plain(answer: str) -> str:
    """The expression in plain signs."""
    text = answer.translate(_SIGNS)
    for pattern, replacement in _COMMANDS:
        text = pattern.sub(replacement, text)
    while (plain := _FRACTION.sub(r"((\1)/(\2))", text)) != text:
        text = plain
    return text.strip()


def _numbers(puzzle: str, where: str) -> tuple[int, ...]:
    words = puzzle.split()
    if len(words) != 4 or not all(word.isdigit() for word in words):
        raise UsageError(f"{where}: {puzzle!r} is no puzzle of four numbers")
    return tuple(sorted(map(int, words)))
