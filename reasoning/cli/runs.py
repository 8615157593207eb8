"""Opening a model and running the checked request on it. Imported late: behind it stand heavy libraries."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog
import typer
from rich.console import Console

from ...engine.errors import BranchwiseError
from ..events import Event
from ..reasoner import Reasoner
from ..solution import Reason, Solution
from .batch import Line, Outcome, failure, solve_lines
from .interrupt import Interrupt, interruptible
from .live import SearchView, shown_live
from .render import asking_lines, encode, memory_line, solution_lines, solution_object
from .requests import Asking, Opening, Printing

ANSWERED, NO_ANSWER, FAILED = 0, 1, 3

log = structlog.get_logger(__name__)


async def run_one(problem: str, opening: Opening, asking: Asking, printing: Printing) -> int:
    """Solve one problem, print it, and return the exit status."""
    console = Console()
    async with Reasoner.open(**msgspec.structs.asdict(opening)) as reasoner:
        say = log.info if printing.json else typer.echo
        if reasoner.memory_plan is not None:
            say(memory_line(reasoner.memory_plan))
        for line in asking_lines(asking.strategy, asking.budget):
            say(line)
        view = SearchView(problem, asking.budget) if console.is_terminal and not printing.json else None
        # Printed before anything else can fail or be interrupted: the engine's end, the graph's file.
        async with interruptible(console.show_cursor) as interrupt:
            solution = await _watched(reasoner, problem, asking, interrupt, view, console)
            _print(solution, asking, printing)
    if printing.graph is not None:
        _write_graph(solution, printing.graph)
    if solution.reason is Reason.FAILED:
        raise BranchwiseError(f"the search failed: {solution.error}")
    return interrupt.status or solution_status(solution)


async def run_many(lines: list[Line], opening: Opening, asking: Asking, printing: Printing) -> int:
    """Solve the lines side by side in one engine, print each as JSON, and return the worst exit status."""
    if asking.seed is None:
        asking = msgspec.structs.replace(asking, seed=secrets.randbits(32))
    async with Reasoner.open(**msgspec.structs.asdict(opening)) as reasoner, interruptible() as interrupt:

        async def solve(line: Line) -> Outcome:
            if interrupt.event.is_set():
                return failure("not started: interrupted", interrupt.status)
            solution = await _solve(reasoner, line.text, asking, interrupt, problem_id=line.id or "")
            return Outcome(result=solution_object(solution, asking.budget), status=solution_status(solution))

        worst = await solve_lines(lines, solve, lambda result: typer.echo(encode(result)), jobs=printing.jobs)
    return interrupt.status or worst


def solution_status(solution: Solution) -> int:
    """0 with an answer, however the search ended; 1 without; 3 where the run failed."""
    if solution.reason is Reason.FAILED:
        return FAILED
    return NO_ANSWER if solution.answer is None else ANSWERED


def _print(solution: Solution, asking: Asking, printing: Printing) -> None:
    if printing.json:
        typer.echo(encode(solution_object(solution, asking.budget)))
        return
    for line in solution_lines(solution, asking.budget):
        typer.echo(line)


def _write_graph(solution: Solution, path: Path) -> None:
    try:
        solution.graph.write(path)
    except OSError as error:
        raise BranchwiseError(f"--graph {path}: was not written ({error.strerror})") from error


async def _watched(
    reasoner: Reasoner,
    problem: str,
    asking: Asking,
    interrupt: Interrupt,
    view: SearchView | None,
    console: Console,
) -> Solution:
    if view is None:
        return await _solve(reasoner, problem, asking, interrupt, on_event=_log_event)
    with shown_live(view, console):
        return await _solve(reasoner, problem, asking, interrupt, on_event=view.receive)


async def _solve(
    reasoner: Reasoner,
    problem: str,
    asking: Asking,
    interrupt: Interrupt,
    *,
    problem_id: str = "",
    on_event: Callable[[Event], None] | None = None,
) -> Solution:
    arguments: dict[str, Any] = msgspec.structs.asdict(asking)
    return await reasoner.solve(
        problem, problem_id=problem_id, interrupt=interrupt.event, on_event=on_event, **arguments
    )


def _log_event(event: Event) -> None:
    fields = msgspec.to_builtins(event)
    log.debug(fields.pop("event"), **fields)
