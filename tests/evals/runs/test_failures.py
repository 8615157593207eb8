"""Samples that failed: told with their reason, counted as wrong, and solved again by `--resume`."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from branchwise.engine.errors import BranchwiseError, StepFailed, UsageError
from branchwise.evals.replay.solver import ReplaySolver
from branchwise.evals.report.write import write_report
from branchwise.evals.runs.database import FILE
from branchwise.evals.runs.plan import Task, make_plan
from branchwise.evals.runs.record import failed_record, make_record
from branchwise.evals.runs.solver import Solved
from branchwise.evals.runs.store import Store
from branchwise.evals.suites.base import Grade
from branchwise.evals.suites.registry import open_suite
from branchwise.evals.summary.summarise import summarise
from branchwise.reasoning.solution import CandidateRecord, Reason, Solution, Usage
from support.evaluating import recipe, reproducible, run, write_chains
from support.records import made_record

FIELDS: dict[str, Any] = {
    "suite": "chains",
    "strategies": ("best_of_n(n=1,4)",),
    "limit": None,
    "budgets": (),
}


def replayed(folder: Path):
    path = folder / "chains.json"
    if not path.exists():
        write_chains(path, problems=6)
    return recipe(recording=str(path), **FIELDS)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of samples that fail while they are in the set."""
    names: set[str] = set()
    solve = ReplaySolver.solve

    async def sometimes(self: ReplaySolver, task: Task) -> Solved:
        if task.sample.id in names and task.seed == 0:
            raise StepFailed("injected\nover lines")
        return await solve(self, task)

    monkeypatch.setattr(ReplaySolver, "solve", sometimes)
    return names


def test_a_run_with_failed_samples_says_so_and_goes_on_until_it_equals_an_unbroken_one(
    tmp_path: Path, failing: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    what = replayed(tmp_path)
    assert run(what, tmp_path / "whole") == 0
    capfd.readouterr()
    failing |= {"game24:1", "game24:4"}
    assert run(what, tmp_path / "run") == BranchwiseError.exit_status
    told = capfd.readouterr().err.splitlines()[-1]
    assert (
        told
        == "4 of 12 samples failed, most with StepFailed: injected over lines; --resume solves them again"
    )

    failing.discard("game24:1")
    assert run(what, tmp_path / "run", resume=True) == BranchwiseError.exit_status
    assert "4 to do" in capfd.readouterr().err
    with Store.read(tmp_path / "run") as store:
        assert {r.sample for r in store.records() if r.reason == "failed"} == {"game24:4"}
        assert len(list(store.records())) == 12

    failing.clear()
    assert run(what, tmp_path / "run", resume=True) == 0
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")
    assert run(what, tmp_path / "run", resume=True) == 0  # and nothing is left to do
    assert "0 to do" in capfd.readouterr().err


def test_what_failed_stays_recorded_until_its_second_attempt_is(
    tmp_path: Path, failing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    what = replayed(tmp_path)
    failing |= {"game24:1"}
    run(what, tmp_path / "run")
    before = reproducible(tmp_path / "run")

    async def broken_off(self: ReplaySolver, task: Task) -> Solved:
        raise UsageError("nothing can be solved now")

    monkeypatch.setattr(ReplaySolver, "solve", broken_off)
    with pytest.raises(UsageError, match="nothing can be solved now"):
        run(what, tmp_path / "run", resume=True)
    assert reproducible(tmp_path / "run") == before


def a_store(folder: Path) -> tuple[Store, list[Task]]:
    plan = make_plan(recipe(limit=4), open_suite("countdown").samples(4, 0))
    return Store.open(folder, plan, resume=True), list(plan.tasks())


def test_only_a_failed_record_gives_way_to_another(tmp_path: Path) -> None:
    store, (first, second, *_) = a_store(tmp_path)
    with store:
        store.add(failed_record(first, RuntimeError("one")), None)
        store.add(failed_record(first, RuntimeError("two")), None)
        assert [record.error for record in store.records()] == ["RuntimeError: two"]
        assert store.done() == set()
        store.add(made_record(first), b"{}")
        assert store.done() == {first.key}
        for late in (made_record(first), failed_record(first, RuntimeError("three"))):
            with pytest.raises(BranchwiseError, match="a second record"):
                store.add(late, None)
        store.add(made_record(second), None)
        assert [record.error for record in store.records()] == [None, None]
        assert store.graph(first.key) == b"{}"
    rows = sqlite3.connect(tmp_path / FILE).execute("select count(*), sum(reason = 'failed') from records")
    assert rows.fetchone() == (2, 0)


class Graph:
    """Two verifiers scored its one node."""

    def to_node_link(self) -> dict[str, Any]:
        nodes = [{"id": "0#0", "branch": "0", "text": "", "reason": "", "score_prm": None, "score_code": 0.5}]
        return {"nodes": nodes, "links": []}


def a_solution(reason: Reason) -> Solution:
    graph: Any = Graph()
    candidate = CandidateRecord(
        id="0", answer="1+2", score=1.0, verified=None, tokens=3, stop="eos", complete=True
    )
    return Solution(
        answer="1+2", text="1+2", score=1.0, verified=None, reason=reason, usage=Usage(tokens=3),
        candidates=(candidate,), graph=graph, seed=0, model="m", strategy={}, error="broke",
    )  # fmt: skip


@pytest.mark.parametrize(("reason", "correct"), [(Reason.FAILED, False), (Reason.EXHAUSTED, True)])
def test_a_search_that_failed_is_wrong_whatever_it_had_offered(
    tmp_path: Path, reason: Reason, correct: bool
) -> None:
    store, (task, *_) = a_store(tmp_path)
    store.close()
    solution = a_solution(reason)
    record = make_record(task, solution, lambda answer, text: Grade(True), solution.graph.to_node_link())
    assert record.correct is correct
    assert record.error == "broke"
    assert record.candidates[0].correct is True
    assert record.verifiers == ("code", "prm")


def test_failed_samples_count_as_wrong_and_in_no_mean_cost_and_are_listed_by_reason(tmp_path: Path) -> None:
    store, tasks = a_store(tmp_path)
    with store:
        store.add(made_record(tasks[0]), None)
        store.add(made_record(tasks[1]), None)
        for task in tasks[2:]:
            store.add(failed_record(task, RuntimeError("out of | memory\n" + "x" * 900)), None)
        summary = summarise(store)
        write_report(store, tmp_path)
    (row,), (failure,) = summary.cells, summary.failures
    assert (row.samples, row.accuracy.value, row.failed, row.outcomes["failed"]) == (4, 0.5, 0.5, 0.5)
    assert row.tokens is not None
    assert row.tokens.value == 30
    assert (failure.samples, failure.example, failure.seed) == (2, tasks[2].sample.id, 0)
    assert failure.error.startswith("RuntimeError: out of | memory xxx")
    assert len(failure.error) == 300
    page = (tmp_path / "report.html").read_text()
    assert "Samples that failed" in page
    assert "RuntimeError: out of | memory" in page
    assert r"RuntimeError: out of \| memory" in (tmp_path / "summary.md").read_text()
