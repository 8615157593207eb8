"""The options that commands share, each declared once."""

import math
from collections.abc import Callable
from typing import Annotated

import typer

from ...engine.errors import UsageError
from .session import set_verbosity

Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        is_eager=True,
        show_default=False,
        callback=set_verbosity,
        help="Log what happens (twice: everything) and show tracebacks.",
    ),
]

Model = Annotated[
    str,
    typer.Option("--model", metavar="M", help="reference, a folder, a .gguf file, or a Hub id (owner/name)."),
]
JsonOut = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


def whole(option: str, *, least: int, most: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers whose error names the value, which the library's own does not."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            limits = f"{least} or more" if most is None else f"{least} to {most}"
            raise UsageError(f"{option} {text}: give a whole number, {limits}")
        return value

    return read


def number(option: str, *, least: float, most: float) -> Callable[[str], float]:
    """As `whole`, for numbers from `least` to `most`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise UsageError(f"{option} {text}: give a number from {least:g} to {most:g}")
        return value

    return read
