"""Any JSONL file as a suite, with a map from roles to its fields; multiple choice with shuffled options."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer import canonical, is_number
from ...verifiers.answer_type import AnswerType
from ...verifiers.nearest import shown, unknown
from . import grading
from .base import Gold, Grade, Sample, drawn
from .datasets import distinct
from .files import Row, field, plain_text, read_file, text_field

OPTIONS_MAX = 26

_NUMBERS = (AnswerType.INTEGER, AnswerType.RATIONAL, AnswerType.DECIMAL, AnswerType.PERCENT)

_DEFAULT_FIELDS = {
    "question": ("question", "problem", "prompt"),
    "gold": ("gold", "answer", "target"),
    "id": ("id",),
    "level": ("level",),
    "options": ("options", "choices"),
}


class JsonlSuite(msgspec.Struct, frozen=True):
    """The rows of a file. `fields` gives the field of each role (question, gold, id, level, options); `kind`
    is the type of the golds, read from each gold where None.

    A row with options is multiple choice: its gold is a letter, an index from 0, or an option's text. The
    options are shuffled by seed and id, and the gold follows.
    """

    name: str
    path: Path
    fields: dict[str, tuple[str, ...]]
    kind: AnswerType | None = None
    oracle: bool = True

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        made = [
            self._sample(row, f"{self.path.name}, row {number}", f"{self.path.stem}-{number}", seed)
            for number, row in enumerate(read_file(self.path), start=1)
        ]
        return drawn(distinct(self.name, made), limit, seed)

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        return grading.grade(sample, answer)

    def _sample(self, row: Row, where: str, default_id: str, seed: int) -> Sample:
        ids = [row[name] for name in self.fields["id"] if row.get(name) is not None]
        identity = plain_text(ids[0], f"{where}: its id") if ids else default_id
        question = text_field(row, self.fields["question"], where)
        levels = [str(row[name]) for name in self.fields["level"] if row.get(name) is not None]
        level = levels[0] if levels else None
        gold = field(row, self.fields["gold"], where)
        options = next((row[name] for name in self.fields["options"] if name in row), None)
        if options is not None:
            return _multiple_choice(identity, question, gold, options, level, seed, where)
        text = _gold_text(gold, where)
        kind = self.kind or inferred_type(text)
        if kind in _NUMBERS and not is_number(canonical(text) or ""):
            raise UsageError(f"{where}: its gold {shown(text)} is no {kind}; no answer could be right")
        return Sample(id=identity, problem=question, gold=Gold(kind, text), level=level)


def jsonl_suite(name: str, path: Path, mapping: Mapping[str, str] | None) -> JsonlSuite:
    """A suite of the file at `path`. Raises `UsageError` for a role or type that is not known, or no file."""
    fields, kind = dict(_DEFAULT_FIELDS), None
    for role, given in (mapping or {}).items():
        if role == "type":
            if given not in set(AnswerType):
                raise UsageError(unknown("answer type", given, list(AnswerType)))
            kind = AnswerType(given)
        elif role in fields:
            fields[role] = (given,)
        else:
            raise UsageError(unknown("field role", role, [*fields, "type"]))
    if not path.is_file():
        raise UsageError(f"suite {name!r}: there is no file {str(path)!r}")
    if kind is AnswerType.CODE:
        raise UsageError(f"suite {name!r}: programs are graded by tests, which only humaneval and mbpp have")
    return JsonlSuite(name, path, fields, kind)


def inferred_type(gold: str) -> AnswerType:
    """The type of a gold that declares none: a number where it is one, else an expression."""
    key = canonical(gold) or ""
    if not is_number(key) or "%" in gold:
        return AnswerType.EXPRESSION
    return AnswerType.RATIONAL if "/" in key else AnswerType.INTEGER


def _gold_text(gold: Any, where: str) -> str:
    text = plain_text(gold, f"{where}: its gold")
    return plain_text(text.rpartition("####")[2], f"{where}: its gold").strip()


def _multiple_choice(
    identity: str, question: str, gold: Any, options: Any, level: str | None, seed: int, where: str
) -> Sample:
    texts = _option_texts(options, where)
    right = _right_option(gold, options, texts, where)
    order = list(range(len(texts)))
    random.Random(f"{seed}:{identity}").shuffle(order)
    shuffled = [texts[place] for place in order]
    lines = "\n".join(f"{_letter(place)}) {text}" for place, text in enumerate(shuffled))
    return Sample(
        id=identity,
        problem=f"{question}\n\n{lines}\n\nAnswer with the letter of the right option.",
        gold=Gold(AnswerType.CHOICE, _letter(order.index(right))),
        level=level,
        meta={"options": msgspec.json.encode(shuffled).decode()},
    )


def _option_texts(options: Any, where: str) -> list[str]:
    """The texts of a list, or of an object whose keys are letters."""
    texts = list(options.values()) if isinstance(options, dict) else options
    if not isinstance(texts, list) or not 2 <= len(texts) <= OPTIONS_MAX:
        raise UsageError(f"{where}: its options are no list of 2 to {OPTIONS_MAX}")
    written = [plain_text(text, f"{where}: one of its options") for text in texts]
    if len(set(written)) < len(written):
        raise UsageError(f"{where}: two of its options are equal")
    return written


def _right_option(gold: Any, options: Any, texts: list[str], where: str) -> int:
    """The place of the right option. An option itself goes before letter and index; the number 2 is no
    option "2"."""
    given = list(options.values()) if isinstance(options, dict) else options
    for place, option in enumerate(given):
        if type(option) is type(gold) and option == gold:
            return place
    if isinstance(options, dict) and isinstance(gold, str) and gold in options:
        return list(options).index(gold)
    if isinstance(gold, int) and not isinstance(gold, bool) and 0 <= gold < len(texts):
        return gold
    letters = [_letter(place) for place in range(len(texts))]
    if isinstance(gold, str) and gold.strip("() .").upper() in letters:
        return letters.index(gold.strip("() .").upper())
    raise UsageError(f"{where}: its gold {shown(gold)} is no option, letter or index of one")


def _letter(place: int) -> str:
    return chr(ord("A") + place)
