"""The options of commands that run a suite (`groups.takes_groups`), each declared once."""

from typing import Annotated

import msgspec
import typer

from ...reasoning.cli.options import RUN, count


class SuiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a `Recipe` that say which problems are solved, and how often."""

    seeds: Annotated[int, count("--seeds", "Times that each problem is solved.", most=10_000, panel=RUN)] = 1
    limit: Annotated[int | None, count("--limit", "Problems, at most.", panel=RUN)] = None
    suite_seed: Annotated[int, count("--suite-seed", "Draws the problems.", least=0, panel=RUN)] = 0
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Where the suite's files lie.", rich_help_panel=RUN),
    ] = None
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=KEY",
            help="Which key of a JSONL file holds what.",
            rich_help_panel=RUN,
        ),
    ] = None


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run's records lie, and how many problems are solved at a time."""

    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Where records and summary go.", rich_help_panel=RUN)
    ] = "out"
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run that is in --out.", rich_help_panel=RUN),
    ] = False
    parallel: Annotated[
        int, count("--parallel", "Problems in the engine at a time.", most=4096, panel=RUN)
    ] = 8
