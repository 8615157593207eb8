"""`branchwise verifiers`: what can check and score a candidate."""

import msgspec
import typer

from ...verifiers.registry import VerifierInfo, describe
from .options import JsonOut, Verbose
from .render import encode


def verifiers(json: JsonOut = False, verbose: Verbose = 0) -> None:
    """List the verifiers, what their verdict is worth and what they need."""
    listing = describe()
    if json:
        typer.echo(encode([msgspec.to_builtins(info) for info in listing]))
        return
    for info in listing:
        typer.echo(f"{info.name}: {', '.join(_traits(info))}")
        typer.echo(f"  {info.summary}")


def _traits(info: VerifierInfo) -> list[str]:
    traits = ["a pass proves the answer" if info.sound else "a pass proves nothing"]
    if info.step_scores:
        traits.append("scores partial work")
    if info.oracle is not False:
        traits.append("needs --oracle" if info.oracle else "needs --oracle on some problems")
    if info.models:
        traits.append(f"needs the model {' and '.join(info.models)}")
    return traits
