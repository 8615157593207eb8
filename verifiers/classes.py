"""Grouping answers into classes of equal ones, so that equal answers vote together.

Equality by value need not be transitive (a comparison may be undecided, or two readings of one text may
differ), and a chain of equal pairs must not join what is not equal. So a class grows only where each of its
members equals each of the other's, and the classes are the same for any order of the answers.
"""

from collections.abc import Callable, Sequence

from .answer import canonical
from .answer_type import AnswerType
from .compare import compare

CLASSES_MAX = 32
"""With more distinct keys than this only equal keys are one class: pairs grow as the square."""

Same = Callable[[str, str], bool | None]


def equivalence_classes(
    answers: Sequence[str | None], kind: AnswerType = AnswerType.EXPRESSION, same: Same | None = None
) -> list[str | None]:
    """The class of each answer, named by its least key; None for an abstention.

    `same` replaces the comparison of two answers. May block for seconds: call it off the event loop.
    """
    keys = [None if answer is None else canonical(answer) for answer in answers]
    spelling: dict[str, str] = {}
    for answer, key in zip(answers, keys, strict=True):
        if answer is not None and key is not None:
            spelling[key] = min(answer, spelling.get(key, answer))
    merged = _merged(spelling, same or (lambda first, second: compare(first, second, kind).equal))
    return [None if key is None else merged[key] for key in keys]


def _merged(spelling: dict[str, str], same: Same) -> dict[str, str]:
    """The class of each key: complete linkage over the pairs that are surely equal."""
    keys = sorted(spelling)
    if len(keys) > CLASSES_MAX:
        return {key: key for key in keys}
    equal = {
        (first, second)
        for place, first in enumerate(keys)
        for second in keys[place + 1 :]
        if same(spelling[first], spelling[second]) is True
    }
    classes: list[list[str]] = [[key] for key in keys]
    for first, second in sorted(equal):
        left = next(members for members in classes if first in members)
        right = next(members for members in classes if second in members)
        if left is not right and all((min(a, b), max(a, b)) in equal for a in left for b in right):
            left.extend(right)
            classes.remove(right)
    return {key: min(members) for members in classes for key in members}
