"""The options of commands that run a suite, each declared once."""

from typing import Annotated, TypeVar

import typer

from ...reasoning.cli.options import RUN, whole

T = TypeVar("T")
"""What an option gives that has a default in one command, and in another may come from a file instead."""

Out = Annotated[
    str, typer.Option("--out", metavar="DIR", help="Where records and summary go.", rich_help_panel=RUN)
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with the run that is in --out.", rich_help_panel=RUN),
]
Seeds = Annotated[
    T,
    typer.Option(
        parser=whole("--seeds", least=1, most=10_000),
        metavar="N",
        help="Times that each problem is solved.",
        rich_help_panel=RUN,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        parser=whole("--limit", least=1), metavar="N", help="Problems, at most.", rich_help_panel=RUN
    ),
]
SuiteSeed = Annotated[
    T,
    typer.Option(
        parser=whole("--suite-seed", least=0), metavar="N", help="Draws the problems.", rich_help_panel=RUN
    ),
]
Data = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Where the suite's files lie.", rich_help_panel=RUN),
]
FieldMap = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=KEY", help="Which key of a JSONL file holds what.", rich_help_panel=RUN),
]
Parallel = Annotated[
    int,
    typer.Option(
        parser=whole("--parallel", least=1, most=4096),
        metavar="N",
        help="Problems in the engine at a time.",
        rich_help_panel=RUN,
    ),
]
