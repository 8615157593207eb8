"""What a summary warns of, each fault planted alone, and what its verifier rows say."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from branchwise.evals.runs.plan import Task
from branchwise.evals.runs.record import Record, failed_record
from branchwise.evals.runs.store import Store
from branchwise.evals.summary.export import to_markdown
from branchwise.evals.summary.summarise import summarise
from branchwise.evals.summary.tables import Summary
from support.records import Outcome, made_candidate, made_record, write_run


def made(folder: Path, outcome: Outcome, **fields: Any) -> Summary:
    """Of 100 problems and 3 seeds, so that nothing is too few."""
    what = {"strategies": ("greedy",), "limit": 100, "seeds": 3, **fields}
    with Store.read(write_run(folder, outcome, **what)) as store:
        return summarise(store)


def codes(summary: Summary) -> set[tuple[str, str]]:
    return {(lint.level, lint.code) for lint in summary.lints}


def spending(flops: dict[str, int]) -> Outcome:
    def outcome(task: Task, place: int) -> Record:
        record = made_record(task, correct=place % 2 == 0)
        usage = msgspec.structs.replace(record.usage, flops=flops[task.cell.strategy])
        return msgspec.structs.replace(record, usage=usage)

    return outcome


def test_a_run_without_fault_has_no_lint(tmp_path: Path) -> None:
    assert made(tmp_path, lambda task, place: made_record(task)).lints == ()


def test_few_problems_and_few_seeds(tmp_path: Path) -> None:
    few = made(tmp_path / "few", lambda task, place: made_record(task), limit=20)
    assert codes(few) == {("warning", "few problems"), ("warning", "few seeds")}
    single = made(tmp_path / "single", lambda task, place: made_record(task), seeds=1)
    assert codes(single) == {("note", "few seeds")}


def test_an_equal_n_is_not_equal_compute(tmp_path: Path) -> None:
    pair = ("best_of_n(n=4, select=majority)", "best_of_n(n=4, select=max_score)")
    unequal = made(tmp_path / "a", spending({pair[0]: 1000, pair[1]: 2000}), strategies=pair)
    assert ("warning", "N-matched") in codes(unequal)
    assert ("warning", "not compute-matched") in codes(unequal)
    assert ("warning", "no equal compute") in codes(unequal)
    assert "2.0 times" in next(lint.text for lint in unequal.lints if lint.code == "N-matched")
    equal = made(tmp_path / "b", spending({pair[0]: 1000, pair[1]: 1000}), strategies=pair)
    assert codes(equal) == set()


def test_truncation_and_censoring(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record:
        if place < 10:
            return made_record(
                task, correct=False, answer=None, text="", censored=True, reason="budget", candidates=()
            )
        cut = made_candidate(complete=False, stop="length", score=0.7)
        return made_record(task, candidates=(cut,)) if place < 30 else made_record(task)

    summary = made(tmp_path, outcome)
    assert codes(summary) == {("warning", "truncation"), ("warning", "censored")}
    assert "10.0% of greedy" in next(lint.text for lint in summary.lints if lint.code == "censored")
    assert summary.cells[0].outcomes["censored"] == 0.1


def scored_by(*verifiers: str, **usage: Any) -> Outcome:
    def outcome(task: Task, place: int) -> Record:
        record = made_record(task, verifiers=verifiers)
        return msgspec.structs.replace(record, usage=msgspec.structs.replace(record.usage, **usage))

    return outcome


@pytest.mark.parametrize(
    ("verifiers", "usage", "missing"),
    [
        (("prm",), {}, ()),
        (("prm",), {"scored_tokens": 0}, ()),
        (("prm",), {"flops": None}, ("in FLOPs, not in tokens",)),
        (("prm",), {"flops": None, "tokens": None}, ("in FLOPs, not in any known cost",)),
        (("prm",), {"scored_tokens": None}, ("read is not known",)),
        (("replay",), {"scored_tokens": 0}, ()),
        (("replay",), {"flops": None, "scored_tokens": None}, ()),
        (("code",), {"scored_tokens": 0}, ("verifier code runs outside of the engine",)),
        (("somebody's",), {"scored_tokens": 0}, ("verifier somebody's runs outside",)),
        (("recorded",), {"flops": None, "scored_tokens": None}, ("not recorded with its cost",)),
        (("code", "prm"), {"flops": None}, ("verifier code runs outside", "not in tokens")),
        ((), {"scored_tokens": 0}, ("who gave the scores was not recorded",)),
    ],
)
def test_a_verifier_is_warned_of_exactly_where_its_work_is_outside_of_the_compared_cost(
    tmp_path: Path, verifiers: tuple[str, ...], usage: dict[str, Any], missing: tuple[str, ...]
) -> None:
    summary = made(tmp_path, scored_by(*verifiers, **usage))
    (row,) = summary.scoring
    assert row.inside == (not missing)
    assert len(row.missing) == len(missing)
    for said, part in zip(row.missing, missing, strict=True):
        assert part in said
    found = [lint for lint in summary.lints if lint.code == "verifier cost missing"]
    assert [lint.level for lint in found] == ["warning"] * len(missing)
    assert codes(summary) == {("warning", "verifier cost missing") for _ in missing}
    assert (
        f"in the cost |\n|---|---|---|---|---|\n| greedy | tokens=256 | {', '.join(verifiers)}"
        in (to_markdown(summary))
        or not verifiers
    )


def test_a_cell_that_nobody_scored_has_no_row_of_scoring(tmp_path: Path) -> None:
    summary = made(tmp_path, lambda task, place: made_record(task, verifiers=(), candidates=()))
    assert summary.scoring == ()
    assert summary.lints == ()


def test_an_oracle(tmp_path: Path) -> None:
    notes = ("oracle: verifier gold knows the answer",)
    summary = made(tmp_path, lambda task, place: made_record(task, notes=notes))
    assert codes(summary) == {("warning", "oracle used")}


def test_missing_failed_and_ungraded_samples(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record | None:
        if place == 0:
            return None
        if place == 1:
            return failed_record(task, RuntimeError("made by hand"))
        return made_record(task, correct=None if place == 2 else True)

    names = {"partial run", "failed samples", "ungraded samples"}
    summary = made(tmp_path, outcome, limit=101)
    assert codes(summary) == {("warning", name) for name in names}
    assert sum(summary.cells[0].outcomes.values()) == pytest.approx(1)
    (failure,) = [(row.samples, row.error) for row in summary.failures]
    assert failure == (3, "RuntimeError: made by hand")
    told = next(lint.text for lint in summary.lints if lint.code == "failed samples")
    assert "3 samples failed" in told
    assert "RuntimeError: made by hand" in told
    assert "--resume solves them again" in told
    assert "| RuntimeError: made by hand |" in to_markdown(summary)


def test_verifier_rows_count_false_positives_and_negatives(tmp_path: Path) -> None:
    """A right candidate at 0.9, each 5th time at 0.4, and a wrong one at 0.2, each 10th at 0.8."""

    def outcome(task: Task, place: int) -> Record:
        right = made_candidate(id="0.0", correct=True, score=0.4 if place % 5 == 0 else 0.9)
        wrong = made_candidate(id="0.1", correct=False, score=0.8 if place % 10 == 0 else 0.2)
        unscored = made_candidate(id="0.2", correct=False, score=None)
        return made_record(task, candidates=(right, wrong, unscored))

    (row,) = made(tmp_path, outcome).verifiers
    assert (row.candidates, row.scored, row.sound, row.right) == (900, 600, False, 0.5)
    assert row.false_positive is not None
    assert row.false_negative is not None
    assert (row.false_positive.value, row.false_negative.value) == (pytest.approx(0.1), pytest.approx(0.2))
    assert row.auroc is not None
    assert row.auroc.value == pytest.approx(0.8 + 0.2 * 0.9)
    assert sum(b.n for b in row.calibration) == 600


def test_the_hull_says_what_a_step_up_buys(tmp_path: Path) -> None:
    costs = {"greedy": 100, "best_of_n(n=2)": 400, "best_of_n(n=8)": 900}
    solved = {"greedy": 40, "best_of_n(n=2)": 30, "best_of_n(n=8)": 80}

    def outcome(task: Task, place: int) -> Record:
        record = spending(costs)(task, place)
        assert record is not None
        return msgspec.structs.replace(record, correct=place < solved[task.cell.strategy])

    first, second = made(tmp_path, outcome, strategies=tuple(costs)).hull
    assert (first.strategy, first.gain) == ("greedy", None)
    assert second.strategy == "best_of_n(n=8)"
    assert second.gain is not None
    assert second.gain.value == pytest.approx(0.4)
    assert second.p is not None
    assert second.p < 1e-6
