"""`branchwise calibrate`: fit the table that the strategy `adaptive` chooses by."""

from typing import Annotated, Any

import msgspec
import typer

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...reasoning.cli.groups import takes_groups
from ...reasoning.cli.options import RUN, Verbose, count
from ...reasoning.cli.requests import Opening, Searching
from ...strategies.adaptive import asks_a_table
from ...strategies.grammar import parse_strategy
from ..runs.options import RunOptions, SuiteOptions

_PROBLEMS = SuiteOptions(suite_seed=1)
_RUN = RunOptions(out="calibration")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@takes_groups
def calibrate(
    *,
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="The problems, by name.")],
    strategy: Annotated[
        list[str],
        typer.Option(metavar="S", help="What may be chosen; repeated, or a sweep.", rich_help_panel=RUN),
    ],
    budget: Annotated[
        list[str], typer.Option(metavar="B", help="tokens=1024; may be repeated.", rich_help_panel=RUN)
    ],
    table: Annotated[
        str, typer.Option(metavar="FILE", help="The table to write, or to add to.", rich_help_panel=RUN)
    ],
    run: RunOptions = _RUN,
    probe: Annotated[int, count("--probe", "Samples that show the difficulty.", most=64, panel=RUN)] = 4,
    bins: Annotated[int, count("--bins", "Bins of difficulty, at most.", most=16, panel=RUN)] = 3,
    problems: SuiteOptions = _PROBLEMS,
    opening: Opening,
    searching: Searching,
    verbose: Verbose = 0,
) -> None:
    """Run strategies alone and behind a probe, and fit which of them `adaptive` is to choose."""
    from ...reasoning.cli.quantity import parse_budget
    from ..runs.arguments import recipe_from, run_recipe
    from ..runs.recipe import Recipe
    from ..runs.sweep import expand_strategies
    from .table import table_path, write_table

    for text in budget:
        if parse_budget(text).tokens is None:
            raise UsageError(f"--budget {text}: a table is fitted by tokens; give tokens=N")
    fields: dict[str, Any] = {
        "suite": suite,
        "strategies": arms(expand_strategies(strategy), probe),
        "budgets": budget,
    }
    for group in (problems, opening, searching):
        fields |= msgspec.structs.asdict(group)
    recipe = recipe_from({name: fields[name] for name in Recipe.__struct_fields__ if name in fields}, None)
    target = table_path(table)
    status = run_recipe(recipe, opening, run)
    if status == 0:
        from ..runs.store import Store

        with Store.read(user_path(run.out)) as store:
            for line in write_table(store, target, bins=bins):
                typer.echo(line)
    raise typer.Exit(status)


def arms(strategies: tuple[str, ...], probe: int) -> list[str]:
    """Each strategy alone, and behind a probe. Raises `UsageError` for one that would choose by a table."""
    for text in strategies:
        if asks_a_table(parse_strategy(text)):
            raise UsageError(f"--strategy {text}: it chooses by a table itself; give what may be chosen")
    return [f"adaptive(probe={count}, arm={text})" for text in strategies for count in (0, probe)]
