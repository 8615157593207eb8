"""Choices fitted on made-up trials whose best strategy is known."""

from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.calibration.command import app, arms
from branchwise.evals.calibration.fit import _fold, fit_bands
from branchwise.evals.calibration.table import table_path, without_step_scores
from branchwise.evals.calibration.trial import Trial
from branchwise.strategies.choice_table import ChoiceTable, load_table
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner


def trial(
    problem: int, arm: str, correct: bool, *, probe: int = 0, tokens: int = 100, **more: float
) -> Trial:
    return Trial(
        problem=f"p{problem}",
        seed=0,
        tokens=tokens,
        arm=arm,
        probe=probe,
        correct=correct,
        flops=more.pop("flops", 1.0),
        case="steps",
        signals=dict(more),
    )


def crossing(count: int = 300, *, telling: bool = True) -> list[Trial]:
    """`wide` solves the hard half, `narrow` the easy half, `even` six of ten."""
    rows: list[Trial] = []
    for problem in range(count):
        easy = problem % 2 == 0
        value = (0.9 if easy else 0.1) if telling else 0.5
        solved = {"wide": not easy, "narrow": easy, "even": problem % 10 < 6}
        for arm, correct in solved.items():
            rows.append(trial(problem, arm, correct))
            rows.append(trial(problem, arm, correct, probe=4, agreement=value))
    return rows


def test_where_no_table_can_be_written_is_told_before_anything_is_spent(tmp_path: Path):
    garbage = tmp_path / "garbage.json"
    garbage.write_text("garbage")
    refused = {
        str(garbage): "choice table .*malformed",
        str(tmp_path): "choice table .*: is no file",
        str(garbage / "t.json"): "^--table .*: cannot write there",
        str(tmp_path / "a\0b"): "^--table .*: cannot write there",
    }
    for text, said in refused.items():
        with pytest.raises(UsageError, match=said):
            table_path(text)
    fresh = tmp_path / "new" / "table.json"
    assert table_path(str(fresh)) == fresh
    assert list(fresh.parent.iterdir()) == []


def test_a_probe_that_tells_problems_apart_is_used():
    (band,) = fit_bands(crossing(), bins=2)
    assert (band.probe, band.signal) == (4, "agreement")
    assert [choice.strategy for choice in band.choices] == ["wide", "narrow"]
    assert 0.1 < band.edges[0] <= 0.9


def test_a_probe_that_tells_nothing_is_not_paid_for():
    (band,) = fit_bands(crossing(telling=False), bins=2)
    assert (band.probe, band.edges) == (0, ())
    assert [choice.strategy for choice in band.choices] == ["even"]


def test_each_budget_has_its_own_band():
    rows = [
        trial(p, arm, (arm == "big") == (tokens > 500), tokens=tokens)
        for p in range(60)
        for arm in ("big", "small")
        for tokens in (100, 1000)
    ]
    bands = fit_bands(rows, bins=3)
    assert [(band.tokens, band.choices[0].strategy) for band in bands] == [(100, "small"), (1000, "big")]


def test_equals_are_told_by_flops():
    rows = [
        trial(p, arm, True, flops=flops) for p in range(60) for arm, flops in (("dear", 9.0), ("cheap", 2.0))
    ]
    assert fit_bands(rows, bins=2)[0].choices[0].strategy == "cheap"


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 80), st.booleans(), st.booleans(), st.floats(0, 1)), min_size=1, max_size=200
    ),
    st.integers(1, 5),
)
def test_any_trials_give_a_band_with_one_choice_more_than_edges(
    rows: list[tuple[int, bool, bool, float]], bins: int
):
    trials = [trial(p, "ab"[arm], correct) for p, arm, correct, _ in rows]
    trials += [trial(p, "ab"[arm], correct, probe=2, score=value) for p, arm, correct, value in rows]
    (band,) = fit_bands(trials, bins=bins)
    assert len(band.choices) == len(band.edges) + 1 <= bins
    assert list(band.edges) == sorted(set(band.edges))


def test_nothing_to_fit_is_one_line():
    with pytest.raises(UsageError, match="no finished sample"):
        fit_bands([], bins=2)
    with pytest.raises(UsageError, match="no sample without a probe at 100 tokens"):
        fit_bands([trial(1, "a", True, probe=4)], bins=2)


def options(folder: Path, table: Path) -> list[str]:
    arms = "--strategy greedy --strategy self_consistency(n=2)"
    return [
        *arms.split(),
        *["--budget", "tokens=64", "--limit", "3", "--probe", "1", "--parallel", "8"],
        "--out",
        str(folder),
        "--table",
        str(table),
    ]


def test_without_a_scorer_of_steps_what_needs_one_is_no_choice():
    rows = [trial(1, arm, True, probe=4, score=0.5, agreement=0.2) for arm in ("beam", "greedy")]
    (left,) = without_step_scores(rows, sound=True)
    assert left.arm == "greedy"
    assert set(left.signals) == {"agreement"}


def test_without_any_verifier_only_what_had_nothing_scored_is_a_choice():
    voted, weighed = trial(1, "self_consistency", True), trial(1, "best_of_n", True)
    rows = [voted, msgspec.structs.replace(weighed, scored=True)]
    assert [row.arm for row in without_step_scores(rows, sound=False)] == ["self_consistency"]


def test_a_run_is_fitted_into_a_table_and_a_second_one_adds_to_it(tmp_path: Path):
    path = tmp_path / "table.json"
    for suite in ("countdown", "arithmetic"):
        told = CliRunner().invoke(app, [suite, *options(tmp_path / suite, path)])
        assert told.exit_code == 0, told.output
    table = load_table(path)
    assert set(table.bands) == {"sound+steps", "sound", "steps", "none"}
    assert table.suite == "countdown, arithmetic"
    assert {band.tokens for bands in table.bands.values() for band in bands} == {64}


def test_a_table_of_other_weights_is_kept(tmp_path: Path):
    path = tmp_path / "table.json"
    bands = {"none": fit_bands([trial(p, "greedy", True) for p in range(60)], bins=2)}
    path.write_bytes(msgspec.json.encode(ChoiceTable(model="m", suite="s", weights_digest="x", bands=bands)))
    before = path.read_bytes()
    told = CliRunner().invoke(app, ["countdown", *options(tmp_path / "run", path)])
    assert isinstance(told.exception, UsageError)
    assert "fitted on m, other weights: give another file" in str(told.exception)
    assert path.read_bytes() == before


def test_what_chooses_by_a_table_is_no_arm():
    with pytest.raises(UsageError, match="it chooses by a table itself"):
        arms(("greedy", "adaptive"), 4)
    with pytest.raises(UsageError, match="it chooses by a table itself"):
        arms(("best_of_n(n=2, inner=adaptive)",), 4)
    assert arms(("greedy",), 4) == ["adaptive(probe=0, arm=greedy)", "adaptive(probe=4, arm=greedy)"]


def test_a_probe_must_beat_the_best_arm_on_the_problems_that_chose_it():
    """Two arms that are nearly equal change places between the folds: that is no merit of a probe."""
    folds = {p: _fold(f"p{p}") for p in range(80)}
    rows = [trial(p, arm, (folds[p] == 0) == (arm == "a")) for p in folds for arm in "ab"]
    rows += [trial(p, arm, p % 10 < 3, probe=4, agreement=p % 4 / 4) for p in folds for arm in "ab"]
    (band,) = fit_bands(rows, bins=2)
    assert (band.probe, len(band.choices)) == (0, 1)
