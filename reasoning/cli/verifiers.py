"""`branchwise verifiers`: what can check and score a candidate."""

from collections.abc import Iterator

import msgspec
import typer

from ...verifiers.registry import VerifierInfo, describe
from .options import JsonOut, Verbose
from .render import encode, parameter_line


def verifiers(json: JsonOut = False, verbose: Verbose = 0) -> None:
    """List the verifiers, their parameters, what their verdict is worth and what they need."""
    listing = describe()
    if json:
        typer.echo(encode([msgspec.to_builtins(info) for info in listing]))
        return
    for info in listing:
        for line in _lines(info):
            typer.echo(line)


def _lines(info: VerifierInfo) -> Iterator[str]:
    yield f"{info.name}: {', '.join(_traits(info))}"
    yield f"  {info.summary}"
    yield from (f"  {parameter_line(parameter)}" for parameter in info.parameters)


def _traits(info: VerifierInfo) -> Iterator[str]:
    if info.sound is None:
        yield "a pass proves the answer where a member's does"
    else:
        yield "a pass proves the answer" if info.sound else "a pass proves nothing"
    if info.step_scores is not False:
        yield "scores partial work" if info.step_scores else "scores partial work where a member does"
    if info.oracle is not False:
        yield "needs --oracle" if info.oracle else "needs --oracle on some problems"
    if info.models:
        yield f"needs the model {' and '.join(info.models)}"
