"""The verifiers at hand, by the entry point group `branchwise.verifiers`.

A value is a class. It is made without arguments, or by its class method `for_problem(problem)` where it has
one: a verifier that depends on the kind of problem says there what it can check, and raises `UsageError` for
others.
"""

from importlib.metadata import entry_points
from typing import Any, Protocol, cast

import msgspec
import structlog

from ..engine.errors import UsageError
from .base import Verifier
from .nearest import unknown
from .problem import Problem

GROUP = "branchwise.verifiers"

log = structlog.get_logger(__name__)


class VerifierInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a user is told about a verifier. `models` are those it needs in the engine; `oracle` is None
    where it depends on the problem."""

    name: str
    summary: str
    sound: bool
    oracle: bool | None
    step_scores: bool
    models: tuple[str, ...] = ()


class ProblemVerifier(Protocol):
    """A verifier class that is made for one problem."""

    @classmethod
    def for_problem(cls, problem: Problem) -> Verifier: ...


def verifier_names() -> tuple[str, ...]:
    """All registered names."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def find_verifier(name: str, problem: Problem) -> Verifier:
    """A new verifier of that name for one search of `problem`.

    Raises `UsageError` for an unknown name, or a problem that the verifier cannot check.
    """
    return make_verifier(load_verifier(name), problem)


def make_verifier(kind: type[Any], problem: Problem) -> Verifier:
    """A new verifier of a class for one search of `problem`."""
    if hasattr(kind, "for_problem"):
        return cast(ProblemVerifier, kind).for_problem(problem)
    return kind()


def load_verifier(name: str) -> type[Any]:
    """The class registered as `name`."""
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"verifier {name!r}: its package cannot be loaded ({point.value}: {error})"
            ) from error
    raise UsageError(unknown("verifier", name, verifier_names()))


def describe() -> list[VerifierInfo]:
    """All registered verifiers, by name; one whose package cannot be loaded is left out and logged."""
    listing = []
    for name in verifier_names():
        try:
            listing.append(_info(name, load_verifier(name)))
        except UsageError as error:
            log.warning("verifier left out", name=name, error=str(error))
    return listing


def _info(name: str, kind: type[Any]) -> VerifierInfo:
    oracle = getattr(kind, "oracle", None)
    return VerifierInfo(
        name=name,
        summary=next(iter((kind.__doc__ or "").strip().splitlines()), ""),
        sound=bool(getattr(kind, "sound", False)),
        oracle=oracle if isinstance(oracle, bool) else None,
        step_scores=bool(getattr(kind, "step_scores", False)),
        models=tuple(getattr(kind, "models", ())),
    )
