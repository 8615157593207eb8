"""Whole runs: what they record, that it is the same side by side, and how they go on."""

import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from branchwise.engine.errors import BranchwiseError, UsageError
from branchwise.evals.runs.launch import open_plan
from branchwise.evals.runs.plan import Plan, make_plan
from branchwise.evals.runs.record import failed_record
from branchwise.evals.runs.store import FILE, Store
from branchwise.evals.suites.registry import open_suite
from branchwise.evals.summary.summarise import summarise
from support.evaluating import command, recipe, reproducible, run, write_chains

REPLAYED = {"suite": "chains", "strategies": ("best_of_n(n=1,4,8)",), "limit": None, "budgets": ()}


def replayed(tmp_path: Path, **fields: object):
    """A recipe on a recording: a run without a model."""
    path = tmp_path / "chains.json"
    if not path.exists():
        write_chains(path)
    return recipe(**{**REPLAYED, "recording": str(path), **fields})


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "one"
    assert run(model_recipe(), folder, parallel=1) == 0
    return folder


def model_recipe():
    return recipe(
        strategies=("greedy", "best_of_n(n=4)", "best_of_n(n=8, select=majority)"),
        budgets=("tokens=100", "tokens=400"),
        limit=4,
        seeds=2,
    )


@pytest.mark.parametrize("parallel", [8, 64])
def test_results_are_the_same_for_any_number_of_problems_side_by_side(
    one_by_one: Path, tmp_path: Path, parallel: int
) -> None:
    assert run(model_recipe(), tmp_path / "other", parallel=parallel) == 0
    assert reproducible(tmp_path / "other") == reproducible(one_by_one)


def test_a_run_records_every_problem_strategy_budget_and_seed_once(one_by_one: Path) -> None:
    plan = make_plan(model_recipe(), open_suite("countdown").samples(4, 0))
    with Store.read(one_by_one) as store:
        assert store.done() == {task.key for task in plan.tasks()}
        records = list(store.records())
    assert len(records) == plan.size == 4 * 3 * 2 * 2
    for record in records:
        limit = record.cell.tokens
        assert limit is not None
        assert 0 < (record.usage.tokens or 0) <= limit
        assert (record.usage.flops or 0) > 0
        assert record.usage.engine["kv_peak_tokens"] > 0
        assert record.usage.engine["kv_unshared_peak_tokens"] > 0
        assert record.costs.decode is not None


def test_costs_add_up_over_the_search_graph(one_by_one: Path) -> None:
    with Store.read(one_by_one) as store:
        for record in store.records():
            graph = json.loads(store.graph(record.key) or b"")
            assert sum(node["tokens_spent"] for node in graph["nodes"]) == record.usage.tokens
            assert sum(node["flops_spent"] for node in graph["nodes"]) == record.usage.flops


def test_a_censored_sample_is_wrong_and_says_so(one_by_one: Path) -> None:
    with Store.read(one_by_one) as store:
        for record in store.records():
            if record.censored:
                assert record.answer is None
                assert record.correct is False
                assert record.reason == "budget"
            if record.correct:
                assert any(c.correct and c.answer == record.answer for c in record.candidates)


def test_a_summary_is_written_beside_the_records(one_by_one: Path) -> None:
    summary = json.loads((one_by_one / "summary.json").read_text())
    assert (summary["done"], summary["planned"]) == (48, 48)
    assert "| greedy | tokens=100 |" in (one_by_one / "summary.md").read_text()
    assert len((one_by_one / "summary.csv").read_text().splitlines()) == 7
    assert not list(one_by_one.glob("*.sqlite-*"))  # closed in one piece


def test_a_second_run_into_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(replayed(tmp_path), folder)
    before = reproducible(folder)
    with pytest.raises(UsageError, match="holds a run with 60 samples done; go on with --resume"):
        run(replayed(tmp_path), folder)
    assert reproducible(folder) == before


def test_a_run_beside_another_in_one_folder_is_refused(tmp_path: Path) -> None:
    plan = make_plan(recipe(), open_suite("countdown").samples(3, 0))
    with (
        Store.open(tmp_path / "run", plan, resume=False),
        pytest.raises(UsageError, match="another run is writing there"),
    ):
        Store.open(tmp_path / "run", plan, resume=True)
    Store.open(tmp_path / "run", plan, resume=True).close()


def begun(folder: Path, plan: Plan) -> None:
    """A run with one record."""
    with Store.open(folder, plan, resume=False) as store:
        store.add(failed_record(next(plan.tasks()), RuntimeError("made by hand")), None)


def test_a_run_that_ended_before_its_first_record_is_begun_anew(tmp_path: Path) -> None:
    samples = open_suite("countdown").samples(3, 0)
    Store.open(tmp_path, make_plan(recipe(), samples), resume=False).close()
    with Store.open(tmp_path, make_plan(recipe(seeds=5), samples), resume=False) as store:
        assert store.recipe.seeds == 5


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"limit": 2}, "limit was 3 and is now 2"),
        ({"seeds": 3}, "seeds was 1 and is now 3"),
        ({"strategies": ("best_of_n(n=2)",)}, r"strategies was 'greedy' and is now 'best_of_n\(n=2\)'"),
        ({"budgets": ("tokens=99",)}, "budgets was 'tokens=256' and is now 'tokens=99'"),
        ({"temperature": 0.5}, "temperature was None and is now 0.5"),
    ],
)
def test_a_changed_recipe_is_refused_with_what_differs(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    samples = open_suite("countdown").samples(3, 0)
    begun(tmp_path, make_plan(recipe(), samples))
    with pytest.raises(UsageError, match=told):
        Store.open(tmp_path, make_plan(recipe(**change), samples), resume=True)


def test_changed_samples_are_refused(tmp_path: Path) -> None:
    begun(tmp_path, make_plan(recipe(), open_suite("countdown").samples(3, 0)))
    with pytest.raises(UsageError, match="the samples of suite countdown are not those"):
        Store.open(tmp_path, make_plan(recipe(), open_suite("countdown").samples(3, 1)), resume=True)


@pytest.mark.pins("inspect_ai#5213")
@pytest.mark.pins("inspect_ai#913")
def test_after_three_of_ten_samples_exactly_seven_are_made_anew(tmp_path: Path) -> None:
    """A folder with three records is what a killed process leaves."""
    ten = replayed(tmp_path, strategies=("best_of_n(n=4)",), limit=10)
    run(ten, tmp_path / "whole")
    run(ten, tmp_path / "broken")
    with sqlite3.connect(tmp_path / "broken" / FILE) as connection:
        kept = connection.execute("select sample from records order by random() limit 3").fetchall()
        names = [row[0] for row in kept]
        connection.execute(f"delete from records where sample not in ({','.join('?' * 3)})", names)
        connection.execute(
            "update records set record = json_set(record, '$.usage.engine', json('{\"kept\": 1}'))"
        )
    assert run(ten, tmp_path / "broken", resume=True) == 0
    assert reproducible(tmp_path / "broken") == reproducible(tmp_path / "whole")
    with Store.read(tmp_path / "broken") as store:
        assert sum("kept" in record.usage.engine for record in store.records()) == 3
        assert len(store.launches()) == 2


def test_a_finished_run_resumes_to_nothing(tmp_path: Path) -> None:
    run(replayed(tmp_path), tmp_path / "run")
    before = reproducible(tmp_path / "run")
    assert run(replayed(tmp_path), tmp_path / "run", resume=True) == 0
    assert reproducible(tmp_path / "run") == before


def test_records_are_read_while_they_are_written(tmp_path: Path) -> None:
    plan = make_plan(recipe(), open_suite("countdown").samples(3, 0))
    with Store.open(tmp_path, plan, resume=False) as writer:
        for done, task in enumerate(plan.tasks(), start=1):
            writer.add(failed_record(task, RuntimeError("made by hand")), None)
            with Store.read(tmp_path) as reader:
                assert len(list(reader.records())) == done
                assert summarise(reader).done == done


def test_a_record_is_never_written_twice(tmp_path: Path) -> None:
    what = replayed(tmp_path)
    run(what, tmp_path / "run")
    with Store.open(tmp_path / "run", open_plan(what)[1], resume=True) as store:
        record = next(iter(store.records()))
        with pytest.raises(BranchwiseError, match="a second record"):
            store.add(record, None)


def killed_until_done(
    arguments: Sequence[str | Path], folder: Path, kills: int, seed: int, longest_s: float
) -> None:
    """Run, kill -9 at random moments, and go on, `kills` times; then to the end."""
    rng = random.Random(seed)
    for _ in range(kills):
        process = command(*arguments, "--resume")
        time.sleep(rng.uniform(0, longest_s))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process = command(*arguments, "--resume")
    _, err = process.communicate()
    assert process.returncode == 0, err.decode()
    with Store.read(folder) as store:
        assert store.meta("format") == "1"


@pytest.mark.slow
def test_a_run_killed_at_any_moment_goes_on_to_equal_records(tmp_path: Path) -> None:
    what = replayed(tmp_path)
    run(what, tmp_path / "whole")
    arguments = ["eval", "--replay", tmp_path / "chains.json", "--strategy", "best_of_n(n=1,4,8)"]
    killed_until_done(
        [*arguments, "--out", tmp_path / "killed"], tmp_path / "killed", 4, seed=1, longest_s=2.5
    )
    assert reproducible(tmp_path / "killed") == reproducible(tmp_path / "whole")


@pytest.mark.slow
def test_twenty_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    arguments: list[str | Path] = [
        "eval",
        "countdown",
        "--limit",
        "40",
        "--seeds",
        "2",
        "--budget",
        "tokens=300",
    ]
    arguments += ["--strategy", "greedy", "--strategy", "best_of_n(n=4,16)"]
    whole = command(*arguments, "--out", tmp_path / "whole")
    _, err = whole.communicate()
    assert whole.returncode == 0, err.decode()
    killed_until_done(
        [*arguments, "--out", tmp_path / "killed"], tmp_path / "killed", 20, seed=2, longest_s=9
    )
    assert reproducible(tmp_path / "killed") == reproducible(tmp_path / "whole")


def test_ctrl_c_leaves_a_readable_partial_report(tmp_path: Path) -> None:
    write_chains(tmp_path / "chains.json", problems=400)
    arguments = ["eval", "--replay", tmp_path / "chains.json", "--strategy", "best_of_n(n=8,16)"]
    process = command(*arguments, "--out", tmp_path / "run")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and recorded(tmp_path / "run") < 20:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err.decode()
    assert "go on with --resume" in err.decode()
    assert b"Traceback" not in err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert 20 <= summary["done"] < summary["planned"] == 800
    assert "Partial:" in (tmp_path / "run" / "summary.md").read_text()


def recorded(folder: Path) -> int:
    if not (folder / FILE).exists():
        return 0
    try:
        with sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True) as connection:
            return connection.execute("select count(*) from records").fetchone()[0]
    except sqlite3.Error:
        return 0


def test_processes_are_told_apart_by_their_lock_not_by_a_file_that_stays(tmp_path: Path) -> None:
    """A lock file left behind by a killed process stops nobody."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "records.lock").write_text(str(os.getpid()))
    assert run(replayed(tmp_path), folder) == 0
