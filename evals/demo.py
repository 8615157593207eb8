"""`branchwise demo`: held-out problems through the reference model, and what the budget bought."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import anyio
import msgspec
import typer

from ..reasoning.budget import Budget
from ..reasoning.cli.options import Verbose, count, whole
from ..reasoning.cli.quantity import format_budget
from ..reasoning.solution import Solution
from .reference.tasks import arithmetic, arithmetic_replay, countdown, countdown_replay
from .reference.tasks.trace import Split

if TYPE_CHECKING:
    from ..reasoning.reasoner import Reasoner

BUDGET = Budget(tokens=4096)
HEADER = ("problem", "answer", "mark", "branches", "tokens", "KV shared / unshared", "seconds")
WIDTHS = (36, 22, 7, 8, 6, 20, 7)

app = typer.Typer(add_completion=False)


class Exercise(msgspec.Struct, frozen=True, kw_only=True):
    """A held-out problem. `right` judges an answer after the search: no search sees it."""

    text: str
    right: Callable[[str], bool]

    def judges(self, solution: Solution) -> bool:
        return solution.answer is not None and self.right(solution.answer)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one exercise came to: by search, and by one greedy sample."""

    exercise: Exercise
    search: Solution
    greedy: Solution
    seconds: float


@app.command()
def demo(
    problems: Annotated[int, count("--problems", "How many, the tasks in turn.", least=2)] = 8,
    n: Annotated[
        int,
        typer.Option(
            "--n", "-n", parser=whole("--n", least=1, most=None), metavar="N", help="Candidates per problem."
        ),
    ] = 32,
    seed: Annotated[int, count("--seed", "Draws the problems and the samples.", least=0)] = 0,
    verbose: Verbose = 0,
) -> None:
    """Solve held-out problems with the reference model, best-of-n against greedy."""
    anyio.run(_demo, list(draw_exercises(problems, seed)), n, seed)


async def _demo(exercises: Sequence[Exercise], n: int, seed: int) -> None:
    # Behind the reasoner stand the heavy libraries, and this module is imported for `branchwise --help` too.
    from ..reasoning.reasoner import Reasoner

    typer.echo(f"{len(exercises)} held-out problems, best of {n}, {format_budget(BUDGET)} each, seed {seed}")
    async with Reasoner.open(model="reference") as reasoner:
        typer.echo("\n" + _columns(HEADER))
        rows = []
        for exercise in exercises:
            row = await _solve(reasoner, exercise, n, seed)
            rows.append(row)
            typer.echo(_columns(_cells(row)))
    typer.echo("")
    for line in totals(rows, n):
        typer.echo(line)


def draw_exercises(count: int, seed: int) -> Iterator[Exercise]:
    """Countdown with 3 or 4 numbers and arithmetic with 4 to 6, in turn, none of them seen in training."""
    rng = random.Random(seed)
    for index in range(count):
        pair = index // 2
        if index % 2 == 0:
            numbers = countdown.generate(rng, Split.HELD_OUT, 3 + pair % 2)
            right = partial(countdown_replay.check_answer, numbers)
            yield Exercise(text=countdown.sentence(numbers), right=right)
        else:
            terms = arithmetic.generate(rng, Split.HELD_OUT, 4 + pair % 3)
            right = partial(arithmetic_replay.check_answer, terms)
            yield Exercise(text=arithmetic.sentence(terms), right=right)


def totals(rows: Sequence[Row], n: int) -> Iterator[str]:
    """What all problems came to, and what the search bought over one greedy sample."""
    shared = sum(row.search.usage.engine["kv_peak_tokens"] for row in rows)
    unshared = sum(row.search.usage.engine["kv_unshared_peak_tokens"] for row in rows)
    search_seconds = sum(row.seconds for row in rows)
    yield f"solved in {search_seconds:.1f} s; KV positions at the peak {shared}, without sharing {unshared}"
    yield "what the budget bought:"
    for name, solutions in (
        ("greedy", [row.greedy for row in rows]),
        (f"best of {n}", [row.search for row in rows]),
    ):
        right = sum(row.exercise.judges(solution) for row, solution in zip(rows, solutions, strict=True))
        tokens = sum(solution.usage.tokens for solution in solutions)
        yield f"  {name:<12} {right} of {len(rows)} right, {tokens} tokens"
    yield "proved: by exact replay during the search; right, wrong: compared afterwards, unseen by the search"


async def _solve(reasoner: "Reasoner", exercise: Exercise, n: int, seed: int) -> Row:
    started = time.perf_counter()
    search = await reasoner.solve(exercise.text, f"best_of_n(n={n})", BUDGET, seed=seed)
    seconds = time.perf_counter() - started
    greedy = await reasoner.solve(exercise.text, "greedy()", BUDGET, seed=seed)
    return Row(exercise=exercise, search=search, greedy=greedy, seconds=seconds)


def _cells(row: Row) -> tuple[str, ...]:
    solution, engine = row.search, row.search.usage.engine
    mark = "proved" if solution.verified else "right" if row.exercise.judges(solution) else "wrong"
    shared, unshared = engine["kv_peak_tokens"], engine["kv_unshared_peak_tokens"]
    branches = len({node.branch for node in solution.graph.nodes() if node.kind != "prompt"})
    figures = (str(branches), str(solution.usage.tokens), f"{shared} / {unshared}", f"{row.seconds:.2f}")
    return (row.exercise.text, solution.answer or "none", mark, *figures)


def _columns(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
