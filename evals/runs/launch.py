"""From a recipe to a folder with records and a report. Imported late: behind it stand heavy libraries."""

import contextlib
import platform
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
import typer
from rich.console import Console

from ...engine.errors import BranchwiseError, UsageError
from ...reasoning.cli.interrupt import interruptible
from ...reasoning.cli.requests import Opening
from ...reasoning.reasoner import Reasoner
from ..report.write import write_report
from ..suites.base import Suite
from ..suites.registry import open_suite
from ..summary.tables import Summary
from .machine import Machine
from .plan import Plan, Task, make_plan
from .progress import Progress, estimate_line, plan_line, shown
from .recipe import Recipe
from .runner import Runner
from .solver import ModelSolver, Solver
from .store import Store

if TYPE_CHECKING:
    from ..scale.ray_solver import RaySolver


class _Console(Console):
    """Where progress is told. Its reader may go: then the command ends as any other whose reader went, where
    the library would end the process on the spot."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("nobody reads the progress any more")


async def launch(recipe: Recipe, folder: Path, machine: Machine, *, resume: bool) -> int:
    """Do what is missing of the recipe's run in `folder`, and what failed before; returns the exit status: 0,
    3 where samples failed, or that of the signal which broke it off. Records and report stand either way.

    Raises `UsageError` in one line for what cannot be run.
    """
    console = _Console(stderr=True)
    suite, plan = open_plan(recipe)
    with Store.open(folder, plan, resume=resume) as store:
        missing = plan.missing(store.done())
        _say(console, plan_line(plan, len(missing)))
        if not missing:
            _conclude(store)
            return 0
        async with _open_solver(recipe, suite, store, machine) as solver, interruptible() as interrupt:
            store.launched(_now(), machine.parallel, _described(machine))
            runner = Runner(solver, suite, store, parallel=machine.parallel)
            try:
                await _solve(plan, missing, runner, store, interrupt.event, console)
            except BaseException:
                with contextlib.suppress(BranchwiseError, OSError):  # it is the run's own error that is told
                    await _concluded(store)
                raise
            summary = await _concluded(store)
            if not interrupt.event.is_set() or summary.done == summary.planned:
                return _told_failures(console, summary)
            told = f"{summary.done} of {summary.planned} samples are recorded; go on with --resume"
            _say(console, f"interrupted: {told}")
            return interrupt.status


def _told_failures(console: Console, summary: Summary) -> int:
    """Say how many samples failed; returns the exit status."""
    failed = sum(row.samples for row in summary.failures)
    if not failed:
        return 0
    most = max(summary.failures, key=lambda row: row.samples)
    _say(
        console,
        f"{failed} of {summary.done} samples failed, most with {most.error}; --resume solves them again",
    )
    return BranchwiseError.exit_status


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)


def _conclude(store: Store) -> Summary:
    """Write what the records say by now, and name the files."""
    summary, paths = write_report(store, store.folder)
    for path in paths:
        typer.echo(path)
    return summary


async def _concluded(store: Store) -> Summary:
    """As above, in a thread: a second signal is heard meanwhile."""
    with anyio.CancelScope(shield=True):
        return await anyio.to_thread.run_sync(_conclude, store)
    raise AssertionError("nobody cancels a scope of our own")


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

        return RecordedSuite.open(recipe.recording, recipe.filter)
    return open_suite(
        recipe.suite,
        Path(recipe.data) if recipe.data else None,
        recipe.mapping or None,
        allow_unsandboxed=recipe.allow_unsandboxed,
    )


async def _solve(
    plan: Plan,
    missing: Sequence[Task],
    runner: Runner,
    store: Store,
    interrupt: anyio.Event,
    console: Console,
) -> None:
    """Do the missing tasks, those of the first problems before the others: the rest is estimated by them."""
    progress = Progress(plan, missing)
    done = store.done()
    for record in store.records():
        if record.key in done:  # what failed is done again
            progress.recall(record)
    pilot = _pilot(plan, runner.parallel)
    with shown(progress, console) as watch:
        await runner.run(missing[:pilot], interrupt, watch)
        if len(missing) > pilot and not interrupt.is_set():
            _say(console, estimate_line(progress))
            await runner.run(missing[pilot:], interrupt, watch)
    _say(console, progress.line())


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
    opening = machine.opening(recipe)
    if machine.ray is not None:
        async with _open_workers(machine.ray, recipe, opening, machine.parallel) as solver:
            for role, digest in (await solver.weights()).items():
                store.note(f"weights of {role}", digest)
            yield solver
        return
    async with Reasoner.open(**msgspec.structs.asdict(opening), reproducible=True) as reasoner:
        for role, info in reasoner.models.items():
            store.note(f"weights of {role}", info.weights_digest + info.adapter_digest)
        yield ModelSolver(reasoner, recipe)


@contextlib.asynccontextmanager
async def _open_workers(
    address: str, recipe: Recipe, opening: Opening, parallel: int
) -> "AsyncIterator[RaySolver]":
    try:
        from ..scale.ray_solver import open_workers
    except ModuleNotFoundError as error:
        raise UsageError(f"--ray {address}: needs {error.name}; pip install 'branchwise[ray]'") from error
    async with open_workers(address, recipe, opening, parallel=parallel) as solver:
        yield solver


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _described(machine: Machine) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(machine),
        "branchwise": version("branchwise"),
        "torch": version("torch"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
