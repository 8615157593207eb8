"""The verifiers at hand, by the entry point group `branchwise.verifiers`.

A value is a class. It is made with its parameters as keyword arguments, or by its class method
`for_problem(problem, ...)` where it has one: a verifier that depends on the kind of problem says there what
it can check, and raises `UsageError` for others. Parameters are checked against the annotations of that
signature, ranges (`msgspec.Meta`) included.
"""

from typing import Any

import msgspec
import structlog

from ..engine.errors import UsageError
from ..engine.plugins import registered
from .base import Verifier
from .named import NamedVerifier, verifier_parameters
from .nearest import unknown
from .parameters import Parameter
from .problem import Problem

GROUP = "branchwise.verifiers"

log = structlog.get_logger(__name__)


class VerifierInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a user is told about a verifier. `models` are those it needs in the engine; `sound` and `oracle`
    are None where they depend on the problem or on the parameters."""

    name: str
    summary: str
    sound: bool | None
    oracle: bool | None
    step_scores: bool | None
    models: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()


def verifier_names() -> tuple[str, ...]:
    """All registered names."""
    return tuple(registered(GROUP))


def parse_verifier(text: str) -> NamedVerifier:
    """What `text` names: `name`, or `name(parameter=value, of=[name, ...])`.

    Raises `UsageError` for an unknown name or parameter, or a value out of range.
    """
    return NamedVerifier.parse(text, load_verifier)


def find_verifier(text: str, problem: Problem) -> Verifier:
    """A new verifier of that name, for one search of `problem`.

    Raises `UsageError` as `parse_verifier` does, and for a problem that the verifier cannot check.
    """
    return parse_verifier(text).make(problem)


def load_verifier(name: str) -> type[Any]:
    """The class registered as `name`."""
    point = registered(GROUP).get(name)
    if point is None:
        raise UsageError(unknown("verifier", name, verifier_names()))
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"verifier {name!r}: its package cannot be loaded ({point.value}: {error})"
        ) from error


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
    models = getattr(kind, "models", ())
    return VerifierInfo(
        name=name,
        summary=next(iter((kind.__doc__ or "").strip().splitlines()), ""),
        sound=_known(kind, "sound"),
        oracle=_known(kind, "oracle"),
        step_scores=_known(kind, "step_scores"),
        models=models if isinstance(models, tuple) else (),
        parameters=verifier_parameters(kind),
    )


def _known(kind: type[Any], trait: str) -> bool | None:
    """A trait of all verifiers of a class; None where each has its own."""
    value = getattr(kind, trait, False)
    return value if isinstance(value, bool) else None
