"""Suites by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ...engine.errors import UsageError
from ...verifiers.nearest import unknown
from .base import Suite
from .reference import ArithmeticSuite, CountdownSuite

_EMBEDDED: dict[str, Callable[[], Suite]] = {
    "countdown": lambda: CountdownSuite("countdown", (3,)),
    "countdown4": lambda: CountdownSuite("countdown4", (4,)),
    "arithmetic": lambda: ArithmeticSuite("arithmetic", (4, 5, 6)),
}


def suite_names() -> tuple[str, ...]:
    """The names that `open_suite` takes."""
    return tuple(_EMBEDDED)


def open_suite(name: str, data: Path | None = None, mapping: Mapping[str, str] | None = None) -> Suite:
    """The suite of that name.

    `data` is where its files lie, `mapping` says which fields of a JSONL file hold what. Raises `UsageError`
    for a name that is not known.
    """
    if name not in _EMBEDDED:
        raise UsageError(unknown("suite", name, suite_names()))
    return _EMBEDDED[name]()
