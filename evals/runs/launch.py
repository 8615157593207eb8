"""From a recipe to a folder with records and a summary. Imported late: behind it stand heavy libraries."""

import contextlib
import platform
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Console

from ...engine.errors import UsageError
from ...reasoning.cli.interrupt import interruptible
from ...reasoning.reasoner import Reasoner
from ..suites.base import Suite
from ..suites.registry import open_suite
from ..summary.export import write_summary
from ..summary.summarise import summarise
from .plan import Plan, make_plan
from .progress import Progress, estimate_line, plan_line, shown
from .recipe import Recipe
from .runner import Runner
from .solver import ModelSolver, Solver
from .store import Store


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is done on: it changes seconds, not results."""

    parallel: int = 8
    device: str = "auto"
    threads: int | None = None
    kv_memory: int | None = None


async def launch(recipe: Recipe, folder: Path, machine: Machine, *, resume: bool) -> int:
    """Do what is missing of the recipe's run in `folder`; returns the exit status: 0, or that of the signal
    which broke it off. Records and summary stand either way.

    Raises `UsageError` in one line for what cannot be run.
    """
    console = Console(stderr=True)
    suite, plan = open_plan(recipe)
    with Store.open(folder, plan, resume=resume) as store:
        missing = plan.missing(store.done())
        console.print(plan_line(plan, len(missing)), highlight=False, soft_wrap=True)
        status = 0
        try:
            if missing:
                status = await _solve(plan, suite, store, machine, console)
        finally:
            summary = summarise(store)
            paths = write_summary(summary, folder)
    if status:
        told = f"interrupted: {summary.done} of {summary.planned} samples are recorded; go on with --resume"
        console.print(told, highlight=False, soft_wrap=True)
    for path in paths:
        typer.echo(path)
    return status


def open_plan(recipe: Recipe) -> tuple[Suite, Plan]:
    """The suite of a checked recipe, and the plan over its samples. Raises `UsageError`."""
    suite = _suite(recipe)
    samples = suite.samples(recipe.limit, recipe.suite_seed)
    if not samples:
        raise UsageError(f"suite {recipe.suite}: it has no sample")
    return suite, make_plan(recipe, samples)


def _suite(recipe: Recipe) -> Suite:
    if recipe.recording is not None:
        from ..replay.suite import RecordedSuite

        return RecordedSuite.open(recipe.recording)
    return open_suite(
        recipe.suite,
        Path(recipe.data) if recipe.data else None,
        recipe.mapping or None,
        allow_unsandboxed=recipe.allow_unsandboxed,
    )


async def _solve(plan: Plan, suite: Suite, store: Store, machine: Machine, console: Console) -> int:
    """Solve the missing tasks; the first problems alone, so that the rest can be estimated."""
    async with _open_solver(plan.recipe, suite, store, machine) as solver, interruptible() as interrupt:
        tasks = plan.missing(store.done())
        store.launched(datetime.now(UTC).isoformat(timespec="seconds"), machine.parallel, _described(machine))
        progress = Progress(plan, tasks)
        for record in store.records():
            progress.recall(record)
        with shown(progress, console) as watch:
            runner = Runner(solver, suite, store, parallel=machine.parallel, watch=watch)
            pilot = _pilot(plan, machine.parallel)
            await runner.run(tasks[:pilot], interrupt.event)
            if len(tasks) > pilot and not interrupt.event.is_set():
                console.print(estimate_line(progress), highlight=False, soft_wrap=True)
                await runner.run(tasks[pilot:], interrupt.event)
        console.print(progress.line(), highlight=False, soft_wrap=True)
    return interrupt.status


def _pilot(plan: Plan, parallel: int) -> int:
    """Tasks of whole problems, enough to keep the engine as busy as it will be."""
    cells = len(plan.cells)
    return -(-max(parallel, cells) // cells) * cells


@contextlib.asynccontextmanager
async def _open_solver(recipe: Recipe, suite: Suite, store: Store, machine: Machine) -> AsyncIterator[Solver]:
    if recipe.recording is not None:
        from ..replay.solver import ReplaySolver
        from ..replay.suite import RecordedSuite

        assert isinstance(suite, RecordedSuite)
        yield ReplaySolver(suite.recording, oracle=recipe.oracle)
        return
    async with Reasoner.open(
        recipe.model,
        draft=recipe.draft,
        prm=recipe.prm,
        adapter=recipe.adapter,
        device=machine.device,
        dtype=recipe.dtype,
        threads=machine.threads,
        kv_memory=machine.kv_memory,
        max_model_len=recipe.max_model_len,
        reproducible=True,
    ) as reasoner:
        for role, info in reasoner.models.items():
            store.note(f"weights of {role}", info.weights_digest + info.adapter_digest)
        yield ModelSolver(reasoner, recipe)


def _described(machine: Machine) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(machine),
        "branchwise": version("branchwise"),
        "torch": version("torch"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
