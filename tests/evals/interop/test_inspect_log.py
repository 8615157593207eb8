"""Runs exported as `.eval` logs, read back by inspect_ai."""

import json
import math
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.runs.plan import make_plan
from branchwise.evals.runs.record import GradedCandidate, Record, failed_record
from branchwise.evals.runs.store import Store
from branchwise.evals.suites.registry import open_suite
from branchwise.reasoning.cli.main import run as run_command
from support.evaluating import recipe, run, write_chains

pytest.importorskip("inspect_ai", reason="needs branchwise[inspect]")

from branchwise.evals.interop.inspect_log import SCORER, write_logs
from inspect_ai.event import InfoEvent, ModelEvent, ScoreEvent, SpanBeginEvent  # pyright: ignore[reportMissingImports]
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log, read_eval_log_sample  # pyright: ignore[reportMissingImports]
from inspect_ai.scorer import CORRECT, INCORRECT, NOANSWER  # pyright: ignore[reportMissingImports]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two strategies at one budget, two seeds."""
    folder = tmp_path_factory.mktemp("run") / "run"
    run(
        recipe(strategies=("greedy", "best_of_n(n=4)"), budgets=("tokens=60", "tokens=300"), seeds=2, seed=5),
        folder,
    )
    return folder


@pytest.fixture(scope="module")
def logs(finished: Path) -> dict[tuple[str, str], EvalLog]:
    """The exported logs, read back, by strategy and budget."""
    with Store.read(finished) as store:
        paths = write_logs(store, finished / "logs")
    read = [read_eval_log(str(path)) for path in paths]
    assert len(list_eval_logs(str(finished / "logs"))) == len(read)
    return {(log.metadata["strategy"], log.metadata["budget"]): log for log in read}


def records(folder: Path) -> dict[tuple[str, str, str, int], Record]:
    with Store.read(folder) as store:
        return {(r.strategy, r.budget, r.sample, r.seed): r for r in store.records()}


def test_each_strategy_and_budget_is_a_finished_log(
    finished: Path, logs: dict[tuple[str, str], EvalLog]
) -> None:
    strategies, budgets = ("greedy", "best_of_n(n=4)"), ("tokens=60", "tokens=300")
    assert set(logs) == {(strategy, budget) for strategy in strategies for budget in budgets}
    for (strategy, budget), log in logs.items():
        assert (log.status, log.eval.task, log.eval.model) == ("success", "countdown", "reference")
        assert (log.eval.solver, log.eval.solver_args) == (strategy, {"budget": budget})
        assert (log.eval.config.epochs, log.metadata["first_seed"]) == (2, 5)
        given = {"limit": 3, "seeds": 2, "seed": 5}
        assert log.eval.task_args == {"strategy": strategy, "budget": budget, **given}
        assert log.metadata["recipe"]["strategies"] == list(strategies)
        assert log.results is not None
        assert (log.results.total_samples, log.results.completed_samples) == (6, 6)


def test_every_record_is_a_sample_with_its_answer_grade_and_usage(
    finished: Path, logs: dict[tuple[str, str], EvalLog]
) -> None:
    left = records(finished)
    for (strategy, budget), log in logs.items():
        for sample in log.samples or []:
            record = left.pop((strategy, budget, str(sample.id), sample.metadata["seed"]))
            assert sample.epoch == record.seed - 5 + 1
            assert sample.scores is not None
            score = sample.scores[SCORER]
            right = NOANSWER if record.answer is None else CORRECT if record.correct else INCORRECT
            assert (score.value, score.answer) == (right, record.answer)
            assert sample.output.completion == record.text
            usage = sample.model_usage["reference"]
            assert usage.output_tokens == record.usage.tokens
            assert usage.input_tokens == (record.usage.prompt_tokens or 0) + (record.usage.scored_tokens or 0)
            assert sample.metadata["usage"]["flops"] == record.usage.flops
        lasted = datetime.fromisoformat(log.stats.completed_at) - datetime.fromisoformat(log.stats.started_at)
        took = sum(sample.total_time or 0 for sample in log.samples or [])
        assert lasted.total_seconds() == pytest.approx(took, abs=1e-3)
        assert took > 0
    assert not left


def test_the_transcript_holds_every_candidate_with_its_text_and_grade_and_the_search_graph(
    finished: Path, logs: dict[tuple[str, str], EvalLog]
) -> None:
    kept = records(finished)
    for (strategy, budget), log in logs.items():
        for sample in log.samples or []:
            record = kept[strategy, budget, str(sample.id), sample.metadata["seed"]]
            told = [e for e in sample.events if isinstance(e, ModelEvent)]
            grades = [e for e in sample.events if isinstance(e, ScoreEvent)]
            spans = [e.name for e in sample.events if isinstance(e, SpanBeginEvent)]
            assert spans == [f"candidate {c.id}" for c in record.candidates]
            assert [e.metadata for e in told] == [msgspec.to_builtins(c) for c in record.candidates]
            assert [e.score.answer for e in grades] == [c.answer for c in record.candidates]
            for event, candidate in zip(told, record.candidates, strict=True):
                assert candidate.answer is None or candidate.answer in event.output.completion
            with Store.read(finished) as store:
                graph = json.loads(store.graph(record.key) or b"")
            assert [e.data for e in sample.events if isinstance(e, InfoEvent)] == [graph]


def test_accuracy_is_the_share_of_right_records(finished: Path, logs: dict[tuple[str, str], EvalLog]) -> None:
    kept = records(finished).values()
    for (strategy, budget), log in logs.items():
        right = [r.correct for r in kept if (r.strategy, r.budget) == (strategy, budget)]
        assert log.results is not None
        (score,) = log.results.scores
        assert score.metrics["accuracy"].value == pytest.approx(sum(map(bool, right)) / len(right))
        assert score.scored_samples == 3


def test_inspect_itself_opens_the_logs(finished: Path, logs: dict[tuple[str, str], EvalLog]) -> None:
    listing = [sys.executable, "-m", "inspect_ai", "log", "list", "--json", "--log-dir"]
    told = subprocess.run([*listing, str(finished / "logs")], check=True, capture_output=True, text=True)
    assert len(json.loads(told.stdout)) == len(logs)
    name = next(path for path in (finished / "logs").glob("*.eval"))
    header = read_eval_log(str(name), header_only=True)
    (sample, *_) = header.eval.dataset.sample_ids or []
    assert read_eval_log_sample(str(name), id=sample, epoch=1).id == sample


def made(folder: Path) -> Path:
    """A run by hand: one sample that failed, one that the grader cannot judge, one missing."""
    plan = make_plan(recipe(), open_suite("countdown").samples(3, 0))
    failed, unsure, _ = plan.tasks()
    unjudged = msgspec.structs.replace(
        failed_record(unsure, RuntimeError("x")),
        answer="1+1",
        correct=None,
        error=None,
        reason="exhausted",
        candidates=(
            GradedCandidate(
                id="0",
                answer="1+1",
                correct=None,
                score=None,
                verified=None,
                tokens=None,
                stop="eos",
                complete=True,
            ),
        ),
    )
    with Store.open(folder, plan, resume=False) as store:
        store.add(failed_record(failed, RuntimeError("no memory")), None)
        store.add(unjudged, None)
    return folder


def test_failed_unjudged_and_missing_samples_are_told_as_such(tmp_path: Path) -> None:
    with Store.read(made(tmp_path / "run")) as store:
        (path,) = write_logs(store, tmp_path / "logs")
    log = read_eval_log(str(path))
    assert log.status == "cancelled"
    assert log.samples is not None
    failed, unjudged = log.samples if log.samples[0].error else log.samples[::-1]
    assert failed.error is not None
    assert failed.error.message == "RuntimeError: no memory"
    assert failed.model_usage == {}
    assert unjudged.scores is not None
    assert math.isnan(unjudged.scores[SCORER].as_float())
    assert log.results is not None
    assert (log.results.total_samples, log.results.completed_samples) == (3, 1)
    assert log.results.scores[0].metrics["accuracy"].value == 0.0


def test_a_replayed_run_is_exported_without_what_is_not_known(tmp_path: Path) -> None:
    path = write_chains(tmp_path / "chains.json", problems=3)
    given = {"suite": "chains", "strategies": ("best_of_n(n=4)",), "limit": None, "budgets": ()}
    run(recipe(**given, recording=str(path)), tmp_path / "run")
    assert run_command(["export", str(tmp_path / "run"), "--out", str(tmp_path / "logs")]) == 0
    (log,) = [read_eval_log(info) for info in list_eval_logs(str(tmp_path / "logs"))]
    assert log.status == "success"
    assert log.eval.config.token_limit is None
    assert log.stats.completed_at == ""


def test_the_command_names_its_files_and_overwrites_none(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(finished), "--to", "inspect", "--out", str(tmp_path)]
    assert run_command(arguments) == 0
    named = capsys.readouterr().out.split()
    assert sorted(named) == sorted(map(str, tmp_path.glob("*.eval")))
    assert len(named) == 4
    assert run_command(arguments) == 2
    assert "is there already; give another --out" in capsys.readouterr().err


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    plan = make_plan(recipe(), open_suite("countdown").samples(3, 0))
    Store.open(tmp_path / "run", plan, resume=False).close()
    with (
        Store.read(tmp_path / "run") as store,
        pytest.raises(UsageError, match="has no record yet"),
    ):
        write_logs(store, tmp_path / "logs")
