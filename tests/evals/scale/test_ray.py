"""Runs spread over the actors of a Ray cluster: equal to runs without it, also where workers are lost."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from branchwise.engine.errors import EngineClosed, ModelLoadError, UsageError
from branchwise.evals.runs.plan import Cell, Task, make_plan
from branchwise.evals.runs.store import FILE, Store
from branchwise.evals.suites.registry import open_suite
from branchwise.reasoning.cli.main import run as run_command
from branchwise.reasoning.cli.requests import Opening
from support.evaluating import command, recipe, reproducible, run, write_chains

pytest.importorskip("ray", reason="needs branchwise[ray]")

import ray  # pyright: ignore[reportMissingImports]
from branchwise.evals.scale.ray_solver import RETRIES, RaySolver, open_workers

CPUS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A local cluster of two CPUs, so of two workers."""
    ray.init(
        address="local",
        num_cpus=CPUS,
        include_dashboard=False,
        object_store_memory=128 * 2**20,
        log_to_driver=False,
        logging_level=40,
    )
    yield
    ray.shutdown()


@pytest.fixture
def idle(cluster: None) -> None:
    """The cluster, when the workers of earlier tests have given their CPUs back."""
    assert waited(lambda: ray.available_resources().get("CPU") == CPUS)


def workers_of(pid: int) -> list[int]:
    """Processes of ours among the descendants of `pid`."""
    parents, titles = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                titles[int(folder.name)] = (folder / "cmdline").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])

    def descends(child: int) -> bool:
        while child in parents and child != pid:
            child = parents[child]
        return child == pid

    return [child for child, title in titles.items() if title.startswith("ray::Worker") and descends(child)]


def recorded(folder: Path) -> int:
    try:
        with sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True) as connection:
            return connection.execute("select count(*) from records").fetchone()[0]
    except sqlite3.Error:
        return 0


def waited(condition, seconds: float = 90.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_ends_with_the_records_of_one_without_ray(tmp_path: Path) -> None:
    what = recipe(strategies=("greedy", "best_of_n(n=16)"), budgets=("tokens=600",), limit=120, seeds=2)
    run(what, tmp_path / "plain")
    arguments = ["eval", "countdown", "--strategy", "greedy", "--strategy", "best_of_n(n=16)"]
    arguments += ["--budget", "tokens=600", "--limit", "120", "--seeds", "2", "--parallel", "4"]
    process = command(*arguments, "--ray", "local", "--out", tmp_path / "spread")
    try:
        assert waited(lambda: recorded(tmp_path / "spread") >= 40 or process.poll() is not None)
        workers = workers_of(process.pid)
        assert len(workers) == (os.cpu_count() or 1)
        os.kill(workers[0], signal.SIGKILL)
        left = recorded(tmp_path / "spread")
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, err.decode()
    assert left < 480, "the worker was killed when all was done: the test showed nothing"
    assert reproducible(tmp_path / "spread") == reproducible(tmp_path / "plain")
    with Store.read(tmp_path / "spread") as store:
        assert len(store.done()) == 480
        assert [launch["ray"] for launch in store.launches()] == ["local"]


@pytest.mark.slow
def test_ctrl_c_ends_a_spread_run_with_a_summary(tmp_path: Path) -> None:
    arguments = ["eval", "countdown", "--strategy", "best_of_n(n=16)", "--budget", "tokens=600"]
    process = command(*arguments, "--limit", "600", "--ray", "local", "--out", tmp_path / "run")
    try:
        assert waited(lambda: recorded(tmp_path / "run") >= 20 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err.decode()
    assert "go on with --resume" in err.decode()
    assert "Traceback" not in err.decode()


def test_an_address_without_a_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", "countdown", "--strategy", "greedy", "--out", str(tmp_path / "run")]
    assert run_command([*arguments, "--ray", "127.0.0.1:1"]) == 2
    assert "--ray 127.0.0.1:1: no cluster there" in capsys.readouterr().err


def test_a_replay_is_not_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_chains(tmp_path / "chains.json", problems=2)
    arguments = ["eval", "--replay", str(tmp_path / "chains.json"), "--strategy", "best_of_n(n=4)"]
    assert run_command([*arguments, "--ray", "local", "--out", str(tmp_path / "run")]) == 2
    assert "a replay runs no model" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.anyio
async def test_workers_have_an_engine_each_and_share_the_tasks(idle: None) -> None:
    plan = make_plan(recipe(limit=6), open_suite("countdown").samples(6, 0))
    async with open_workers("local", plan.recipe, Opening(), parallel=2) as solver:
        assert solver.engines == CPUS
        assert set(await solver.weights()) == {"policy", "draft", "prm"}
        for task in plan.tasks():
            solved = await solver.solve(task)
            assert solved.solution.seed == task.seed
            assert solved.solution.usage.tokens > 0
    assert ray.is_initialized(), "a cluster that others opened stays"


@pytest.mark.slow
@pytest.mark.anyio
async def test_what_a_worker_raises_is_raised_here(idle: None) -> None:
    (sample,) = open_suite("countdown").samples(1, 0)
    what = recipe(limit=1)
    async with open_workers("local", what, Opening(), parallel=1) as solver:
        unknown = Task(sample, Cell(strategy="beam_of_light", budget=""), 0)
        with pytest.raises(UsageError, match="beam_of_light"):
            await solver.solve(unknown)
    assert waited(lambda: ray.available_resources().get("CPU") == CPUS)
    async with open_workers("local", what, Opening(model="./nowhere"), parallel=1) as solver:
        with pytest.raises(ModelLoadError, match="nowhere"):
            await solver.weights()
    with pytest.raises(UsageError, match="has not 64 CPU free"):
        async with open_workers("local", what, Opening(threads=64), parallel=1):
            pass


class Fatal:
    """A worker whose process ends with each call."""

    def solve(self, task: Task) -> None:
        os._exit(1)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_sample_that_ends_its_worker_each_time_ends_the_run(idle: None) -> None:
    (task, *_) = make_plan(recipe(limit=1), open_suite("countdown").samples(1, 0)).tasks()
    actor = ray.remote(Fatal).options(max_restarts=-1, max_task_retries=RETRIES)  # pyright: ignore
    with pytest.raises(EngineClosed, match=f"lost {RETRIES + 1} times"):
        await RaySolver([actor.remote()]).solve(task)
