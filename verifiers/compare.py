"""Comparing an answer with another by type, in tiers: exact, then symbolic, then as text.

Every comparison is symmetric: neither side is "the gold one". The symbolic tier runs in a worker process
that is killed where it takes too long; then the verdict is "cannot tell", never equal and never different.
"""

import enum
import importlib.util
import re
import threading
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from .answer import canonical, is_number, is_words, tidy
from .answer_type import AnswerType
from .shape import Formula, Interval, Several, Shape, Union, as_interval, read_shape
from .worker import Worker, WorkerFailed, WorkerTimeout

SYMBOLIC_CPU_S = 4
SYMBOLIC_S = 40.0
"""How long the symbolic tier may think about one pair of formulas, in CPU and wall-clock seconds."""

MEMBERS_MAX = 12
"""Sets of more members are matched by their keys alone."""

_UNIT = re.compile(r"(.*\d[%)}]?)\s+([A-Za-z][A-Za-z\s./^\d-]*)")
_SCALES = re.compile(
    r"\b(?:hundred|thousand|[mbtr]+illion|dozen|score|percent|and|or|mod|e)s?\b", re.IGNORECASE
)
_LETTER = re.compile(r"\(?([A-Za-z])(?:\)|\.|:)?(?:\s.*)?", re.DOTALL)
_NUMERIC = frozenset({AnswerType.INTEGER, AnswerType.RATIONAL, AnswerType.DECIMAL, AnswerType.PERCENT})
_QUOTES = " \t\n\"'`.“”‘’"


class Tier(enum.StrEnum):
    """Which comparison decided."""

    EXACT = "exact"
    SYMBOLIC = "symbolic"
    TEXT = "text"


class Verdict(msgspec.Struct, frozen=True):
    """Whether two answers are equal (None: cannot tell), which tier said so, and why it could not."""

    equal: bool | None
    tier: Tier
    reason: str = ""


Symbolic = Callable[[str, str], bool | None]
"""Compares two formulas; None where they cannot be read. Raises `WorkerTimeout` or `WorkerFailed`."""


def compare(first: str, second: str, kind: AnswerType, symbolic: Symbolic | None = None) -> Verdict:
    """Whether two answers of one type are equal. `symbolic` replaces the worker process (tests).

    Numbers are equal as numbers only: a formula whose value they are may be the problem said again.
    """
    if kind is AnswerType.CODE:
        return Verdict(None, Tier.TEXT, "code is graded by its tests")
    if kind is AnswerType.STRING:
        return Verdict(_folded(first) == _folded(second) != "", Tier.TEXT)
    if kind is AnswerType.CHOICE:
        left, right = choice_letter(first), choice_letter(second)
        return Verdict(left is not None and left == right, Tier.EXACT)
    if kind in _NUMERIC:
        left, right = (canonical(number_text(answer, kind)) or "" for answer in (first, second))
        return Verdict(is_number(left) and left == right, Tier.EXACT)
    comparison = _Comparison(symbolic or symbolic_tier)
    equal = comparison.answers(first, second, kind)
    return Verdict(equal, comparison.tier, comparison.reason if equal is None else "")


def number_text(answer: str, kind: AnswerType) -> str:
    """The number of an answer that should be one: without its unit, and for percents without the sign."""
    text = tidy(answer)
    unit = _UNIT.fullmatch(text)
    if unit is not None and not _SCALES.search(unit[2]) and is_number(canonical(unit[1]) or ""):
        text = unit[1]
    if kind is AnswerType.PERCENT:
        text = re.sub(r"\s*(?:%|per\s?cent)$", "", text, flags=re.IGNORECASE)
    return text


def choice_letter(answer: str) -> str | None:
    """The letter of a choice such as `(b)`, `B.` or `B) 12 apples`, None where the text names none."""
    match = _LETTER.fullmatch(tidy(answer).strip("*$ "))
    if match is None:
        return None
    bare = len(match[0]) > 1 and match[0][1:2].isspace() and not match[0].startswith("(")
    return None if bare else match[1].upper()


def symbolic_tier(first: str, second: str) -> bool | None:
    """The worker's verdict on two formulas."""
    if not has_symbolic_tier():
        raise WorkerFailed("the symbolic tier is not installed; pip install 'branchwise[evals]'", "missing")
    return _symbolic_worker().call(first, second, timeout_s=SYMBOLIC_S, cpu_s=SYMBOLIC_CPU_S)


def has_symbolic_tier() -> bool:
    """Whether the packages of the symbolic tier are installed (`pip install branchwise[evals]`)."""
    return importlib.util.find_spec("latex2sympy2_extended") is not None


class _Comparison:
    """One comparison of two answers; keeps the deepest tier that was needed, and why a verdict is None."""

    def __init__(self, symbolic: Symbolic) -> None:
        self._symbolic = symbolic
        self.tier = Tier.EXACT
        self.reason = ""

    def answers(self, first: str, second: str, kind: AnswerType) -> bool | None:
        if (key := canonical(first)) is not None and key == canonical(second):
            return True
        return self.shapes(read_shape(first, kind), read_shape(second, kind))

    def shapes(self, left: Shape, right: Shape) -> bool | None:
        match left, right:
            case Interval() | Union(), Several():
                right = as_interval(right)
            case Several(), Interval() | Union():
                left = as_interval(left)
        match left, right:
            case Formula(), Formula():
                return self.formulas(left.text, right.text)
            case Several(), Several():
                return self.members(left, right)
            case Interval(), Interval():
                return self.intervals(left, right)
            case Union(), Union():
                return self.matched(left.parts, right.parts, self.intervals)
        return False

    def formulas(self, first: str, second: str) -> bool | None:
        left, right = canonical(first), canonical(second)
        if left is None or right is None:
            return False
        if left == right:
            return True
        if is_number(left) and is_number(right):
            return False
        if is_words(tidy(first)) or is_words(tidy(second)):
            self.tier = Tier.TEXT
            return False
        return self.symbolic(tidy(first), tidy(second))

    def symbolic(self, first: str, second: str) -> bool | None:
        self.tier = Tier.SYMBOLIC
        try:
            equal = self._symbolic(first, second)
        except (WorkerTimeout, WorkerFailed) as error:
            self.reason = f"{first!r} and {second!r}: {error}"
            return None
        if equal is None:  # no formulas: their texts differ, and that is all there is to say
            self.tier = Tier.TEXT
            return False
        return equal

    def members(self, left: Several, right: Several) -> bool | None:
        if not _brackets_agree(left, right):
            return False
        if left.ordered and right.ordered:
            if len(left.members) != len(right.members):
                return False
            return _all([self.shapes(a, b) for a, b in zip(left.members, right.members, strict=True)])
        return self.matched(left.members, right.members, self.shapes)

    def intervals(self, left: Interval, right: Interval) -> bool | None:
        if (left.low_closed, left.high_closed) != (right.low_closed, right.high_closed):
            return False
        return _all([self.formulas(left.low, right.low), self.formulas(left.high, right.high)])

    def matched(
        self, left: Sequence[Any], right: Sequence[Any], same: Callable[[Any, Any], bool | None]
    ) -> bool | None:
        """Whether every member has an equal on the other side."""
        if max(len(left), len(right)) > MEMBERS_MAX:
            return False
        rows = [[same(a, b) for b in right] for a in left]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return _all([_any(line) for line in (*rows, *columns)])


def _brackets_agree(left: Several, right: Several) -> bool:
    """A bare list goes with any brackets of its kind; a tuple is no set."""
    if left.brackets and right.brackets:
        return left.brackets == right.brackets
    if left.brackets == right.brackets:
        return True
    bare, other = (left, right) if not left.brackets else (right, left)
    return bare.ordered == other.ordered


def _all(verdicts: Sequence[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _any(verdicts: Sequence[bool | None]) -> bool | None:
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_QUOTES)


_lock = threading.Lock()
_workers: list[Worker] = []


def _symbolic_worker() -> Worker:
    with _lock:
        if not _workers:
            _workers.append(Worker(f"{__package__}.symbolic:compare"))
        return _workers[0]
