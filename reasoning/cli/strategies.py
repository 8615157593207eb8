"""`branchwise strategies`: the search algorithms and their parameters."""

from collections.abc import Iterator

import msgspec
import typer

from ...strategies.base import Needs
from ...strategies.registry import StrategyInfo, describe
from ..pairing import CAPABILITIES
from .options import JsonOut, Verbose
from .render import encode, parameter_line


def strategies(json: JsonOut = False, verbose: Verbose = 0) -> None:
    """List the strategies, their parameters and what they need."""
    listing = describe()
    if json:
        typer.echo(encode([msgspec.to_builtins(info) for info in listing]))
        return
    for info in listing:
        for line in _lines(info):
            typer.echo(line)


def _lines(info: StrategyInfo) -> Iterator[str]:
    yield f"{info.name}: {info.summary}"
    for parameter in info.parameters:
        yield f"  {parameter_line(parameter)}"
    if not info.lossless:
        yield "  not lossless: it changes the distribution that the policy writes from"
    needed = list(_needed(info.needs))
    if needed:
        yield f"  needs {', '.join(needed)}"


def _needed(needs: Needs) -> Iterator[str]:
    if needs.step_scores:
        yield "a verifier that scores steps"
    elif needs.scores:
        yield "a verifier"
    yield from (f"the model {model}" for model in needs.models)
    yield from (CAPABILITIES[name] for name in needs.capabilities)
