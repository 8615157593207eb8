"""The options that commands share, each declared once: name, help and check."""

import math
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from ...engine.errors import UsageError
from .session import set_verbosity

RUN, SEARCH, MODEL, ENGINE = "Run", "Search", "Model", "Engine"
"""The panels of a command's help."""

T = TypeVar("T")
"""What an option gives that has a default in one command, and in another may come from a file instead."""

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


Verifier = Annotated[
    str | None,
    typer.Option(metavar="V", help="name(k=v, ...): see `branchwise verifiers`.", rich_help_panel=SEARCH),
]
Oracle = Annotated[
    T,
    typer.Option("--oracle", help="Allow a verifier that knows the answer.", rich_help_panel=SEARCH),
]
Step = Annotated[
    str | None,
    typer.Option(metavar="mark:TEXT|tokens:N", help="What ends a step.", rich_help_panel=SEARCH),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        parser=whole("--max-tokens", least=1),
        metavar="N",
        help="Longest candidate, in tokens.",
        rich_help_panel=SEARCH,
    ),
]

Model = Annotated[
    T,
    typer.Option(
        metavar="M",
        help="reference, a folder, a .gguf file, or a Hub id (owner/name).",
        rich_help_panel=MODEL,
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(metavar="M", help="A smaller model of the same vocabulary.", rich_help_panel=MODEL),
]
Judge = Annotated[
    str | None,
    typer.Option(
        metavar="M", help="A model for --verifier judge; else it is the policy.", rich_help_panel=MODEL
    ),
]
Prm = Annotated[str | None, typer.Option(metavar="M", help="A process reward model.", rich_help_panel=MODEL)]
Adapter = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="A LoRA adapter of the model, a PEFT folder.", rich_help_panel=MODEL),
]
System = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The system message.", rich_help_panel=MODEL)
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think", help="Ask the chat template for thinking, or not.", rich_help_panel=MODEL
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        parser=number("--temperature", least=0, most=100),
        metavar="X",
        help="0 is greedy; the model's own when not given.",
        rich_help_panel=MODEL,
    ),
]

Device = Annotated[str, typer.Option(metavar="D", help="auto, cpu, cuda, cuda:N.", rich_help_panel=ENGINE)]
Dtype = Annotated[
    T,
    typer.Option(metavar="T", help="auto, float32, bfloat16.", rich_help_panel=ENGINE),
]
Threads = Annotated[
    int | None,
    typer.Option(
        parser=whole("--threads", least=1, most=1024),
        metavar="N",
        help="CPU threads.",
        rich_help_panel=ENGINE,
    ),
]
KvMemory = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory for KV, such as 2GiB.", rich_help_panel=ENGINE)
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        parser=whole("--max-model-len", least=1),
        metavar="N",
        help="Longest sequence, in tokens.",
        rich_help_panel=ENGINE,
    ),
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
