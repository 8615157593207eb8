"""Classes of equal answers in the order of their votes, as a live vote needs them.

The first answer founds a class; each later one joins the earliest class all of whose members it equals, else
it founds its own. So a chain of equal pairs joins nothing that is not equal, the classes of the first answers
stay the same whatever comes behind them, and a class bears the key of its first member. Where equality is
transitive the classes are those of `equivalence_classes`.
"""

from collections.abc import Callable, Sequence

from .classes import CLASSES_MAX

Equal = Callable[[str, str], bool]
"""Whether two answers, as they were written, are surely equal."""


def partition(answers: Sequence[str | None], keys: Sequence[str | None], equal: Equal) -> list[str | None]:
    """The class of each answer, None for an abstention (an answer without a key).

    Answers of one key are one class and are compared as the first of them is written. Beyond `CLASSES_MAX`
    distinct keys each further one is its own class: pairs grow as the square.
    """
    names: dict[str, str] = {}
    classes: list[tuple[str, list[str]]] = []
    for answer, key in zip(answers, keys, strict=True):
        if answer is None or key is None or key in names:
            continue
        found = _joined(answer, classes, equal) if len(names) < CLASSES_MAX else None
        if found is None:
            found = key, []
            classes.append(found)
        found[1].append(answer)
        names[key] = found[0]
    return [names.get(key) if key is not None else None for key in keys]


def _joined(
    answer: str, classes: Sequence[tuple[str, list[str]]], equal: Equal
) -> tuple[str, list[str]] | None:
    """The earliest class whose members all equal the answer."""
    return next((found for found in classes if all(equal(member, answer) for member in found[1])), None)
