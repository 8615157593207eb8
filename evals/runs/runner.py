"""Doing the tasks of a run: a bounded number side by side, each recorded as soon as it is finished."""

import os
from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread
import msgspec
import structlog

from ..suites.base import Grade, Suite
from .plan import Task
from .record import Record, failed_record, make_record
from .solver import Solved, Solver, concerns_all
from .store import Store

log = structlog.get_logger(__name__)


class Runner:
    """Solves tasks, `parallel` at a time on each of the solver's engines, grades what came of them and stores
    it.

    Solving runs on the event loop; grading and compressing, which take no engine, in threads.
    """

    def __init__(self, solver: Solver, suite: Suite, store: Store, *, parallel: int) -> None:
        self._solver = solver
        self._suite = suite
        self._store = store
        self.parallel = parallel * solver.engines
        self._graders = anyio.CapacityLimiter(max(1, os.cpu_count() or 1))
        self._writer = anyio.CapacityLimiter(1)

    async def run(
        self, tasks: Sequence[Task], interrupt: anyio.Event, watch: Callable[[Record], None]
    ) -> None:
        """Do all tasks, or those finished when `interrupt` is set; `watch` hears of every record.

        An error that concerns all tasks ends the run and is raised; the records made by then stay.
        """
        remaining = iter(tasks)
        failures: list[Exception] = []

        async def work() -> None:
            try:
                for task in remaining:
                    watch(await self._finish(task))
            except Exception as error:  # raised below: a task group would wrap it
                failures.append(error)
                group.cancel_scope.cancel()

        async def stop() -> None:
            await interrupt.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            async with anyio.create_task_group() as workers:
                for _ in range(min(self.parallel, len(tasks))):
                    workers.start_soon(work)
            group.cancel_scope.cancel()
        if failures:
            raise failures[0]

    async def _finish(self, task: Task) -> Record:
        """Solve and record one task. What is solved is recorded, whatever is cancelled meanwhile."""
        try:
            solved = await self._solver.solve(task)
        except Exception as error:
            if concerns_all(error):
                raise
            log.warning("sample failed", sample=task.sample.id, cell=str(task.cell), error=str(error))
            return await self._keep(failed_record(task, error), None)
        with anyio.CancelScope(shield=True):
            record, graph = await anyio.to_thread.run_sync(self._graded, task, solved, limiter=self._graders)
            return await self._keep(record, graph)
        raise AssertionError("nobody cancels a scope of our own")

    async def _keep(self, record: Record, graph: bytes | None) -> Record:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._store.add, record, graph, limiter=self._writer)
        return record

    def _graded(self, task: Task, solved: Solved) -> tuple[Record, bytes]:
        """The record, and the graph as node-link JSON."""

        def grade(answer: str | None, text: str) -> Grade:
            try:
                return self._suite.grade(task.sample, answer, text)
            except Exception as error:  # the search is paid for: its record must not be lost
                log.warning("grader failed", sample=task.sample.id, error=str(error))
                return Grade(None, f"grader failed: {type(error).__name__}: {error}")

        graph = solved.solution.graph.to_node_link()
        record = make_record(task, solved.solution, grade, graph, spent=solved.spent, beyond=solved.beyond)
        return record, msgspec.json.encode(graph)
