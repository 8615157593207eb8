"""Summaries of records made by hand: shares, costs, equal compute, difficulty."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from branchwise.evals.runs.plan import Task, make_plan
from branchwise.evals.runs.record import GradedCandidate, Record, Spent, failed_record
from branchwise.evals.runs.store import Store
from branchwise.evals.suites.registry import open_suite
from branchwise.evals.summary.equal_compute import family_of
from branchwise.evals.summary.export import to_csv, to_markdown
from branchwise.evals.summary.summarise import summarise
from branchwise.evals.summary.tables import CellRow, Summary
from support.evaluating import recipe

FAMILY = ("best_of_n(n=2)", "best_of_n(n=8)")


def made(folder: Path, outcome: "Any", **fields: Any) -> Summary:
    """The summary of a run whose records are `outcome(task, place of the problem)`."""
    what = recipe(**{"strategies": ("greedy", *FAMILY), "limit": 20, "seeds": 2, **fields})
    plan = make_plan(what, open_suite("countdown").samples(20, 0))
    with Store.open(folder, plan, resume=False) as store:
        place = {sample.id: index for index, sample in enumerate(plan.samples)}
        for task in plan.tasks():
            record = outcome(task, place[task.sample.id])
            if record is not None:
                store.add(record, None)
        return summarise(store)


def record(task: Task, correct: bool | None, flops: int | None, **fields: Any) -> Record:
    usage = Spent(tokens=None if flops is None else flops // 10, flops=flops, engine={"seconds": 0.5})
    return Record(
        **{
            "sample": task.sample.id,
            "strategy": task.cell.strategy,
            "budget": task.cell.budget,
            "seed": task.seed,
            "level": str(len(task.sample.id) % 2),
            "answer": "1",
            "correct": correct,
            "grade_reason": "",
            "reason": "exhausted",
            "censored": False,
            "score": None,
            "verified": None,
            "text": "",
            "usage": usage,
            "candidates": (),
            **fields,
        }
    )


COSTS = {"greedy": 400, "best_of_n(n=2)": 200, "best_of_n(n=8)": 800}


def ladder(task: Task, place: int) -> Record:
    """greedy solves 8 problems of 20, n=2 the first 10, n=8 the first 16, both seeds alike."""
    solved = {"greedy": 8, "best_of_n(n=2)": 10, "best_of_n(n=8)": 16}[task.cell.strategy]
    return record(task, place < solved, COSTS[task.cell.strategy])


def row(summary: Summary, strategy: str) -> CellRow:
    (found,) = [row for row in summary.cells if row.strategy == strategy]
    return found


def test_accuracy_and_costs_are_those_of_the_records(tmp_path: Path) -> None:
    summary = made(tmp_path, ladder)
    cell = row(summary, "best_of_n(n=8)")
    assert (cell.problems, cell.samples, cell.accuracy.value) == (20, 40, 0.8)
    assert cell.accuracy.n == 20  # samples of one problem are one unit
    assert cell.flops is not None
    assert (cell.flops.value, cell.flops.low, cell.flops.high) == (800, 800, 800)
    assert cell.seconds is not None
    assert cell.kv is None  # not known, not 0
    assert (summary.done, summary.planned) == (120, 120)


def test_families_are_compared_at_equal_cost_and_nowhere_else(tmp_path: Path) -> None:
    table = made(tmp_path, ladder).equal_compute
    assert table is not None
    assert table.axis == "flops"
    at_400 = {r.family: r for r in table.rows if r.cost == 400}
    mixed = at_400["best_of_n"]
    assert mixed.accuracy is not None
    assert mixed.accuracy.value == pytest.approx(0.65)  # half way from 200 to 800 in log cost
    assert mixed.weight == pytest.approx(0.5)
    assert mixed.difference is not None
    assert mixed.difference.value == pytest.approx(0.25)
    assert (mixed.baseline, at_400["greedy"].baseline) == ("greedy", None)
    assert mixed.p_holm == mixed.p
    assert {r.cost for r in table.rows} == {400}  # one strategy alone reaches any other cost
    assert [name.partition(" @")[0] for name, _, _ in table.hull] == list(FAMILY)


def test_tests_are_paired_by_problem_and_adjusted(tmp_path: Path) -> None:
    tests = {test.strategy: test for test in made(tmp_path, ladder).tests}
    assert set(tests) == set(FAMILY)
    better = tests["best_of_n(n=8)"]
    assert better.comparison.difference.value == pytest.approx(0.4)
    assert (better.comparison.only_first, better.comparison.only_second) == (16, 0)
    assert better.comparison.p is not None
    assert better.p_holm == pytest.approx(2 * better.comparison.p)
    assert better.problems_for_2_points is not None


def test_a_censored_share_is_shown_and_counts_as_wrong(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record:
        if place < 5:
            return record(task, False, 100, answer=None, censored=True, reason="budget")
        return record(task, None if place < 7 else True, 100)

    cell = row(made(tmp_path, outcome), "greedy")
    assert (cell.accuracy.value, cell.censored, cell.abstained) == (0.65, 0.25, 0.25)
    assert cell.ungraded == 0.1
    assert cell.reasons == {"budget": 10, "exhausted": 30}


def test_a_failed_sample_is_wrong_and_leaves_the_costs_of_the_others_known(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record:
        if place == 3:
            return failed_record(task, RuntimeError("made by hand"))
        return record(task, True, 100)

    summary = made(tmp_path, outcome)
    cell = row(summary, "greedy")
    assert (cell.accuracy.value, cell.failed) == (0.95, 0.05)
    assert cell.flops is not None
    assert (cell.flops.value, cell.flops.n) == (100, 19)
    assert "5.0% of greedy @ tokens=256" in to_markdown(summary)


def test_unknown_costs_are_null_in_every_table(tmp_path: Path) -> None:
    summary = made(tmp_path, lambda task, place: record(task, True, None))
    assert row(summary, "greedy").flops is None
    assert row(summary, "greedy").tokens is None
    assert summary.equal_compute is None
    assert "not known" in to_markdown(summary)


def test_a_partial_run_compares_what_is_there(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record | None:
        return ladder(task, place) if place < 5 or task.cell.strategy == "greedy" else None

    summary = made(tmp_path, outcome)
    assert summary.done == 60
    assert "Partial: 60 missing." in to_markdown(summary)
    assert all(test.comparison.difference.n == 5 for test in summary.tests)


def test_a_run_without_records_has_a_summary(tmp_path: Path) -> None:
    summary = made(tmp_path, lambda task, place: None)
    assert (summary.done, summary.cells, summary.tests, summary.equal_compute) == (0, (), (), None)
    assert to_markdown(summary)
    assert len(to_csv(summary).splitlines()) == 1


def test_an_oracle_is_marked_and_not_ranked(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record:
        notes = ("oracle: verifier replay recomputes the answer",) if task.cell.strategy in FAMILY else ()
        return msgspec.structs.replace(ladder(task, place), notes=notes)

    summary = made(tmp_path, outcome)
    assert row(summary, "best_of_n(n=8)").oracle
    assert summary.equal_compute is not None
    assert [name for name, _, _ in summary.equal_compute.hull] == ["greedy @ tokens=256"]
    assert "best_of_n(n=8) (oracle)" in to_markdown(summary)


def test_problems_are_split_by_their_own_levels(tmp_path: Path) -> None:
    (split,) = made(tmp_path, ladder).difficulty
    assert (split.by, split.oracle) == ("level", False)
    assert sum(r.accuracy.n for r in split.rows if r.strategy == "greedy") == 20


def test_base_samples_sort_the_problems_and_are_not_compared(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record:
        if task.cell.budget:
            return ladder(task, place)
        assert task.seed == 2  # the comparison has 0 and 1
        candidates = tuple(
            GradedCandidate(
                id=f"0.{i}", answer="1", correct=i < 16 - place // 2, score=None, verified=None,
                tokens=30, stop="eos", complete=True,
            )
            for i in range(16)
        )  # fmt: skip
        return record(task, True, 100, candidates=candidates)

    summary = made(tmp_path, outcome, difficulty=16)
    assert {row.strategy for row in summary.cells} == {"greedy", *FAMILY}
    split = next(s for s in summary.difficulty if s.by == "quintile")
    assert split.oracle
    greedy = {r.difficulty: r.accuracy.value for r in split.rows if r.strategy == "greedy"}
    assert greedy == {"1 of 5": 0, "2 of 5": 0, "3 of 5": 0, "4 of 5": 1, "5 of 5": 1}
    assert [c.k for c in summary.coverage] == [1, 2, 4, 8, 16]
    assert summary.coverage[0].pass_at_k.value == pytest.approx(sum(16 - p // 2 for p in range(20)) / 320)
    assert summary.done == 140


def test_exports_hold_the_same_figures(tmp_path: Path) -> None:
    summary = made(tmp_path, ladder)
    rows = list(csv.DictReader(io.StringIO(to_csv(summary))))
    assert [r["strategy"] for r in rows] == ["greedy", *FAMILY]
    assert float(rows[2]["accuracy"]) == 0.8
    assert rows[2]["kv"] == ""
    again = json.loads(msgspec.json.encode(summary))
    assert again["cells"][2]["accuracy"]["value"] == 0.8
    assert "| best_of_n(n=8) | tokens=256 | 20 | 80.0 %" in to_markdown(summary)


@pytest.mark.parametrize(
    ("strategy", "family"),
    [
        ("greedy", "greedy"),
        ("best_of_n(n=4)", "best_of_n"),
        ("best_of_n(n=none, temperature=0.5)", "best_of_n"),
        ("best_of_n(n=4, select=majority)", "best_of_n(select=majority)"),
        ("best_of_n(n=4, stop_on_verified=false)", "best_of_n(stop_on_verified=false)"),
    ],
)
def test_a_family_is_a_strategy_without_its_numbers(strategy: str, family: str) -> None:
    assert family_of(strategy) == family
