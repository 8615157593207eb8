"""`branchwise solve`: one problem, or many, within a budget."""

from typing import Annotated

import anyio
import typer

from ...engine.errors import UsageError
from .batch import Line, read_lines
from .checks import check_readable, checked_opening, checked_searching, checked_strategy
from .groups import takes_groups
from .options import ENGINE, SEARCH, JsonOut, Verbose, count
from .output import graph_path
from .quantity import DEFAULT_BUDGET, parse_budget
from .requests import Asking, Opening, Printing, Searching

DEFAULT_STRATEGY = "best_of_n(n=16)"


@takes_groups
def solve(
    *,
    problem: Annotated[
        str | None, typer.Argument(metavar="PROBLEM", show_default=False, help="The text.")
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="Many problems, a line each, as text or JSON with problem and id; JSON lines out.",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="S", help="name(k=v, ...): see `branchwise strategies`.", rich_help_panel=SEARCH
        ),
    ] = DEFAULT_STRATEGY,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Set a parameter of the strategy.", rich_help_panel=SEARCH),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="B",
            help="Hard limits: tokens, flops, seconds, kv_tokens, answer_reserve.",
            rich_help_panel=SEARCH,
        ),
    ] = DEFAULT_BUDGET,
    seed: Annotated[
        int | None, count("--seed", "Same seed, same result; drawn when not given.", least=0, panel=SEARCH)
    ] = None,
    opening: Opening,
    searching: Searching,
    jobs: Annotated[int, count("--jobs", "Problems of --input solved at a time.", panel=ENGINE)] = 32,
    graph: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the search graph: .json, .graphml or .mmd.")
    ] = None,
    json: JsonOut = False,
    verbose: Verbose = 0,
) -> None:
    """Solve a problem by search, within a hard budget."""
    printing = Printing(json=json, graph=None if graph is None else graph_path(graph), jobs=jobs)
    lines = _lines(problem, input, graph)
    asking = Asking(
        strategy=checked_strategy(strategy, set or []),
        budget=parse_budget(budget),
        seed=seed,
        **checked_searching(searching),
    )
    checked_opening(opening)
    if input is None:
        check_readable(lines[0].text, opening.model)
    # Behind this stand torch and transformers: whatever was refused above cost none of their seconds.
    from .runs import run_many, run_one

    if input is None:
        status = anyio.run(run_one, lines[0].text, opening, asking, printing)
    else:
        status = anyio.run(run_many, lines, opening, asking, printing)
    raise typer.Exit(status)


def _lines(problem: str | None, input: str | None, graph: str | None) -> list[Line]:
    if input is not None:
        if problem is not None:
            raise UsageError(f"--input {input}: given together with a problem; give one of the two")
        if graph is not None:
            raise UsageError(
                f"--graph {graph}: goes with one problem, not with --input; leave one of the two out"
            )
        return read_lines(input)
    if problem is None:
        raise UsageError('no problem given: write branchwise solve "PROBLEM", or --input FILE (- for stdin)')
    if not problem.strip():
        raise UsageError(
            f'problem {problem!r} is empty: write it as text, such as "Use 3, 7 and 12 to make 43"'
        )
    return [Line(number=1, text=problem)]
