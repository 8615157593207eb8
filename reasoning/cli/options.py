"""Options that single commands share, each declared once: name, help and check. Those that commands take
together are declared in `requests`."""

import math
from collections.abc import Callable
from typing import Annotated, Any

import typer
from msgspec import Meta

from ...engine.errors import UsageError
from .quantity import parse_bytes
from .session import set_verbosity

RUN, SEARCH, MODEL, ENGINE = "Run", "Search", "Model", "Engine"
"""The panels of a command's help."""

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

JsonOut = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


def whole(option: str, *, least: int, most: int | None) -> Callable[[str], int]:
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


def count(
    option: str,
    help: str = "",
    *,
    least: int = 1,
    most: int | None = None,
    panel: str | None = None,
    show_default: bool | str = True,
) -> Any:
    """An option that takes a whole number."""
    return typer.Option(
        option,
        parser=whole(option, least=least, most=most),
        metavar="N",
        help=help or None,
        show_default=show_default,
        rich_help_panel=panel,
    )


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


Verifier = Annotated[
    str | None,
    typer.Option(metavar="V", help="name(k=v, ...): see `branchwise verifiers`.", rich_help_panel=SEARCH),
]
Step = Annotated[
    str | None,
    typer.Option(metavar="mark:TEXT|tokens:N", help="What ends a step.", rich_help_panel=SEARCH),
]
MaxTokens = Annotated[int | None, count("--max-tokens", "Longest candidate, in tokens.", panel=SEARCH)]
Threads = Annotated[
    Annotated[int, Meta(ge=1)] | None,
    count("--threads", "CPU threads.", most=1024, panel=ENGINE),
]
KvMemory = Annotated[
    Annotated[int, Meta(ge=1)] | None,
    typer.Option(
        parser=parse_bytes, metavar="SIZE", help="Memory for KV, such as 2GiB.", rich_help_panel=ENGINE
    ),
]
MaxModelLen = Annotated[
    Annotated[int, Meta(ge=1)] | None,
    count("--max-model-len", "Longest sequence, in tokens.", panel=ENGINE),
]
Speculation = Annotated[
    str | None,
    typer.Option(
        metavar="ngram(k=4)|suffix(k=8)|draft(k=4)",
        help="Verify guessed tokens together: another speed, the same result. width=2 follows a second "
        "guess (suffix, draft); verify=ratio keeps more of a draft model's guesses, for another result.",
        rich_help_panel=ENGINE,
    ),
]
