"""The public data sets with one right answer each: GSM8K, MATH-500, AIME, AMC, SVAMP."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer import canonical, is_number
from ...verifiers.answer_type import AnswerType
from . import grading
from .base import Gold, Grade, Sample, drawn
from .files import Row, Source, read_rows, text_field

_PERCENT_ASKED = re.compile(r"what\s+(?:is\s+the\s+)?percent|percentage", re.IGNORECASE)
_CALCULATION = re.compile(r"<<[^>]*>>")


class DataSuite(msgspec.Struct, frozen=True):
    """Samples made of the rows of a data set, graded by their golds' types."""

    name: str
    source: Source
    make: Callable[[Row, str], Sample]
    data: Path | None = None
    oracle: bool = True

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        rows = read_rows(self.name, self.source, self.data)
        return drawn(
            distinct(self.name, [self.make(row, f"{self.name}-{i}") for i, row in enumerate(rows)]),
            limit,
            seed,
        )

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        return grading.grade(sample, answer)


def distinct(name: str, samples: list[Sample]) -> list[Sample]:
    """The samples. Raises `UsageError` where two have one id, or there are none."""
    if not samples:
        raise UsageError(f"suite {name!r}: its data holds no rows")
    seen: set[str] = set()
    for sample in samples:
        if sample.id in seen:
            raise UsageError(f"suite {name!r}: two rows have the id {sample.id!r}; ids must differ")
        seen.add(sample.id)
    return samples


def _gold(value: str, problem: str, kind: AnswerType = AnswerType.RATIONAL) -> Gold:
    """The gold as data sets write it: "27", "025", "1,234". A number is graded as one whatever `kind` says,
    and as a percent where the problem asks for one and the number carries no sign."""
    text = value.strip()
    if is_number(canonical(text) or "") and "%" not in text:
        asked = _PERCENT_ASKED.search(problem) is not None
        kind = AnswerType.PERCENT if asked else AnswerType.RATIONAL
    return Gold(kind, text)


def _gsm8k(row: Row, default_id: str) -> Sample:
    problem, answer = text_field(row, ["question"], default_id), text_field(row, ["answer"], default_id)
    solution, mark, gold = answer.rpartition("####")
    if not mark or not gold.strip():
        raise UsageError(f"{default_id}: its answer has no '#### number'")
    steps = len(_CALCULATION.findall(solution))
    return Sample(id=default_id, problem=problem, gold=_gold(gold, problem), meta={"steps": str(steps)})


def _math500(row: Row, default_id: str) -> Sample:
    problem = text_field(row, ["problem"], default_id)
    gold = _gold(text_field(row, ["answer"], default_id), problem, AnswerType.EXPRESSION)
    return Sample(
        id=str(row.get("unique_id") or default_id),
        problem=problem,
        gold=gold,
        level=None if row.get("level") is None else str(row["level"]),
        meta={"subject": str(row.get("subject", ""))},
    )


def _contest(row: Row, default_id: str) -> Sample:
    problem = text_field(row, ["problem", "question"], default_id)
    gold = _gold(text_field(row, ["answer"], default_id), problem)
    return Sample(id=default_id, problem=problem, gold=gold)


def _svamp(row: Row, default_id: str) -> Sample:
    body, question = (text_field(row, [name], default_id).strip() for name in ("Body", "Question"))
    stop = "" if body.endswith((".", "?", "!", ",")) else "."
    return Sample(
        id=str(row.get("ID") or default_id),
        problem=f"{body}{stop} {question}",
        gold=_gold(text_field(row, ["Answer"], default_id), question),
        meta={"operation": str(row.get("Type", ""))},
    )


_SETS: dict[str, tuple[Source, Callable[[Row, str], Sample]]] = {
    "gsm8k": (Source(folder="gsm8k", file="test.jsonl", hub="openai/gsm8k", hub_config="main"), _gsm8k),
    "math500": (Source(folder="math500", file="test.jsonl", hub="HuggingFaceH4/MATH-500"), _math500),
    "aime24": (
        Source(folder="aime24", file="test.jsonl", hub="HuggingFaceH4/aime_2024", hub_split="train"),
        _contest,
    ),
    "amc23": (Source(folder="amc23", file="test.jsonl", hub="math-ai/amc23"), _contest),
    "svamp": (Source(folder="svamp", file="test.jsonl", hub="ChilleD/SVAMP"), _svamp),
}

DATA_SETS = tuple(_SETS)


def data_suite(name: str, data: Path | None) -> DataSuite:
    """The suite of a public data set."""
    source, make = _SETS[name]
    return DataSuite(name, source, make, data)
