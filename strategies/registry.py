"""The strategies at hand, by the entry point group `branchwise.strategies`; a value is a `Strategy` class."""

import msgspec
import structlog

from ..engine.errors import UsageError
from ..engine.plugins import registered
from ..verifiers.nearest import unknown
from .base import Needs, Strategy
from .parameters import Parameter, parameters

GROUP = "branchwise.strategies"

log = structlog.get_logger(__name__)


class StrategyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a user is told about a strategy. `lossless`: it does not change what the policy would write."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    lossless: bool
    needs: Needs


def strategy_names() -> tuple[str, ...]:
    """All registered names."""
    return tuple(registered(GROUP))


def find_strategy(name: str) -> type[Strategy]:
    """The class registered as `name`.

    Raises `UsageError` for an unknown name, with the nearest ones, and for one that cannot be loaded.
    """
    point = registered(GROUP).get(name)
    if point is None:
        raise UsageError(unknown("strategy", name, strategy_names()))
    try:
        kind = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"strategy {name!r}: its package cannot be loaded ({point.value}: {error})"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Strategy) and tag_of(kind) == name):
        raise UsageError(f"strategy {name!r}: {point.value} must be a Strategy with tag={name!r}")
    return kind


def tag_of(kind: type[Strategy]) -> str:
    """The name of a strategy class in the grammar and in JSON."""
    return str(kind.__struct_config__.tag)


def describe() -> list[StrategyInfo]:
    """All registered strategies, by name; one that cannot be loaded is left out and logged."""
    listing = []
    for name in strategy_names():
        try:
            listing.append(_info(name, find_strategy(name)))
        except UsageError as error:
            log.warning("strategy left out", name=name, error=str(error))
    return listing


def _info(name: str, kind: type[Strategy]) -> StrategyInfo:
    return StrategyInfo(
        name=name,
        summary=next(iter((kind.__doc__ or "").strip().splitlines()), ""),
        parameters=parameters(kind),
        lossless=kind.lossless,
        needs=kind.needs,
    )
