"""`branchwise eval`: strategies at several budgets over a suite of problems."""

from typing import Annotated, Any

import msgspec
import typer

from ...reasoning.cli.groups import given_options, takes_groups
from ...reasoning.cli.options import ENGINE, RUN, Verbose, count
from ...reasoning.cli.requests import Opening, Searching
from .options import RunOptions, SuiteOptions

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@takes_groups
def evaluate(
    *,
    ctx: typer.Context,
    suite: Annotated[
        str | None, typer.Argument(metavar="SUITE", show_default=False, help="The problems, by name.")
    ] = None,
    strategies: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            metavar="S",
            help='May be repeated, and sweep: "best_of_n(n=4..64*2)", "best_of_n(n=4,16)".',
            rich_help_panel=RUN,
        ),
    ] = None,
    budgets: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="B", help="May be repeated: tokens=1024.", rich_help_panel=RUN),
    ] = None,
    problems: SuiteOptions,
    seed: Annotated[int | None, count("--seed", "The first seed.", least=0, panel=RUN)] = None,
    difficulty: Annotated[
        int | None,
        count(
            "--difficulty",
            "Samples per problem, 16 or more, that only sort the problems by difficulty.",
            least=0,
            most=4096,
            panel=RUN,
        ),
    ] = None,
    allow_unsandboxed: Annotated[
        bool | None,
        typer.Option(
            "--allow-unsandboxed",
            help="Run generated programs as yourself where there is no sandbox.",
            rich_help_panel=RUN,
        ),
    ] = None,
    recording: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="PATH",
            help="Recorded outputs in place of suite and model.",
            rich_help_panel=RUN,
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of which filter, where lm-eval recorded several.", rich_help_panel=RUN
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="All of this from a TOML file.", rich_help_panel=RUN),
    ] = None,
    run: RunOptions,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Spread problems over a Ray cluster: local, auto, ray://HOST:PORT.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    opening: Opening,
    searching: Searching,
    verbose: Verbose = 0,
) -> None:
    """Compare strategies on a suite of problems, sample by sample into a folder that can be resumed."""
    from .arguments import recipe_from, run_recipe
    from .recipe import Recipe

    fields: dict[str, Any] = {
        "suite": suite,
        "strategies": strategies,
        "budgets": budgets,
        "seed": seed,
        "difficulty": difficulty,
        "allow_unsandboxed": allow_unsandboxed,
        "recording": recording,
        "filter": filter,
    }
    for group in (problems, opening, searching):
        fields |= msgspec.structs.asdict(group)
    given = given_options(ctx).intersection(Recipe.__struct_fields__)
    checked = recipe_from({name: value for name, value in fields.items() if name in given}, recipe)
    raise typer.Exit(run_recipe(checked, opening, run, ray=ray))
