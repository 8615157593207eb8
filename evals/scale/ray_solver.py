"""Solving on a Ray cluster: actors that each own an engine, driven by the one process that keeps the records.

A sample's seed decides its solution, so it does not matter which worker solves it, or how often: Ray runs the
samples of a lost worker again on its successor, and the driver records each result once.
"""

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import ray  # pyright: ignore[reportMissingImports]
from ray.exceptions import RayError, RayTaskError  # pyright: ignore[reportMissingImports]

from ...engine.errors import EngineClosed, UsageError
from ...reasoning.cli.requests import Opening
from ..interop.reasoner_thread import shared_reasoner
from ..runs.plan import Task
from ..runs.recipe import Recipe
from ..runs.solver import ModelSolver, Solved

LOCAL = "local"
RETRIES = 3
"""Times that a sample is solved anew when its worker was lost."""
CONNECT_S = 10.0
LOCAL_OBJECTS = 128 * 2**20
"""Bytes that a local cluster keeps for results on their way to the driver."""


class Worker:
    """An engine of its own, in a process of the cluster. Opened by the first call, also after a restart."""

    def __init__(self, recipe: Recipe, opening: Opening) -> None:
        self._recipe = recipe
        self._opening = opening

    def weights(self) -> dict[str, str]:
        """The digest of each model by its role."""
        models = shared_reasoner(self._opening).reasoner.models
        return {role: info.weights_digest + info.adapter_digest for role, info in models.items()}

    def solve(self, task: Task) -> Solved:
        """Called from several threads at a time: the tasks share the engine."""
        thread = shared_reasoner(self._opening)
        return thread.start(ModelSolver(thread.reasoner, self._recipe).solve, task).result()


class RaySolver:
    """Implements `runs.solver.Solver` over workers; a task goes to the one that has the fewest."""

    def __init__(self, workers: list[Any]) -> None:
        self._workers = workers
        self._in_flight = [0] * len(workers)

    @property
    def engines(self) -> int:
        return len(self._workers)

    async def weights(self) -> Mapping[str, str]:
        """The digest of each model by its role. Raises `UsageError` where workers have different ones, and
        what opening a model raises."""
        asked = [worker.weights.remote() for worker in self._workers]
        found = [await _result(reference) for reference in asked]
        for weights in found:
            if weights != found[0]:
                raise UsageError(
                    f"--ray: workers have different weights, {found[0]} and {weights}; put the same model "
                    "on every node"
                )
        return found[0]

    async def solve(self, task: Task) -> Solved:
        """Raises what the worker raised; `EngineClosed` where workers were lost again and again."""
        index = min(range(len(self._workers)), key=lambda i: self._in_flight[i])
        self._in_flight[index] += 1
        try:
            return await _result(self._workers[index].solve.remote(task))
        finally:
            self._in_flight[index] -= 1


@asynccontextmanager
async def open_workers(
    address: str, recipe: Recipe, opening: Opening, *, parallel: int
) -> AsyncIterator[RaySolver]:
    """Workers on the cluster at `address` ("local" starts one here), one per free GPU, or per
    `opening.threads` free CPUs (1 when not given); each solves up to `parallel` tasks side by side.

    Raises `UsageError` where there is no such cluster, or nothing is free in it.
    """
    started = not ray.is_initialized()
    if started:
        await _check_reachable(address)
        await anyio.to_thread.run_sync(_connect, address)
    try:
        resources = _resources(opening)
        count = _free(resources)
        if not count:
            wanted = " and ".join(f"{amount} {name}" for name, amount in resources.items())
            raise UsageError(f"--ray {address}: the cluster has not {wanted} free, which one worker takes")
        actor: Any = ray.remote(Worker)
        placed = actor.options(
            num_cpus=resources["CPU"],
            num_gpus=resources.get("GPU", 0),
            max_restarts=-1,
            max_task_retries=RETRIES,
            max_concurrency=parallel,
        )
        opening = msgspec.structs.replace(opening, threads=resources["CPU"])
        workers = [placed.remote(recipe, opening) for _ in range(count)]
        try:
            yield RaySolver(workers)
        finally:
            for worker in workers:
                ray.kill(worker)
    finally:
        if started:
            ray.shutdown()


async def _check_reachable(address: str) -> None:
    """Refuse a host and port that nobody listens on: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and port.isdigit()):
        return
    try:
        with anyio.fail_after(CONNECT_S):
            stream = await anyio.connect_tcp(host, int(port))
    except (OSError, TimeoutError) as error:
        raise UsageError(_no_cluster(address, str(error) or "no answer")) from error
    await stream.aclose()


def _no_cluster(address: str, why: object) -> str:
    return f"--ray {address}: no cluster there ({why}); give local, auto, HOST:PORT or ray://HOST:PORT"


def _connect(address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = {"include_dashboard": False, "object_store_memory": LOCAL_OBJECTS} if address == LOCAL else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(_no_cluster(address, error)) from error


def _resources(opening: Opening) -> dict[str, int]:
    """What a worker takes by Ray's names: a GPU where there are any and the device may be one, and CPUs."""
    gpus = opening.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
    return {"CPU": opening.threads or 1, **({"GPU": 1} if gpus else {})}


def _free(resources: Mapping[str, int]) -> int:
    """How many workers the cluster has room for."""
    free = ray.available_resources()
    return min(int(free.get(name, 0)) // amount for name, amount in resources.items())


async def _result(reference: Any) -> Any:
    """What a call to a worker returned, waited for in a thread; raises the error that it raised there."""
    try:
        return await anyio.to_thread.run_sync(
            ray.get, reference, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except RayError as error:
        raise EngineClosed(
            f"--ray: the worker of one sample was lost {RETRIES + 1} times ({_first_line(error)}); "
            "give a smaller --parallel, and go on with --resume"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
