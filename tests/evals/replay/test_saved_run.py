"""A run's own records as a back end: the same figures again, without a model; and what is no recording."""

from pathlib import Path

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.replay.estimates import pass_estimate, token_estimate, vote_estimate
from branchwise.evals.replay.readers import open_recording
from branchwise.evals.runs.store import Store
from branchwise.verifiers.vote import Select
from support.evaluating import recipe, run
from support.records import made_candidate, made_record, write_run

SAMPLES = "best_of_n(n=8, select=majority, stop_on_verified=false)"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight whole samples of each of six sums, with two seeds."""
    folder = tmp_path_factory.mktemp("saved") / "sums"
    what = recipe(suite="arithmetic", strategies=(SAMPLES,), budgets=("tokens=4096",), limit=6, seeds=2)
    assert run(what, folder) == 0
    return folder


def test_a_saved_run_holds_its_candidates_as_they_were(saved: Path) -> None:
    recording = open_recording(saved)
    with Store.read(saved) as store:
        records = list(store.records())
    assert len(recording.problems) == 6
    assert recording.most_samples == 16  # both seeds
    by_problem = {problem.id: problem for problem in recording.problems}
    for record in records:
        completions = by_problem[record.sample].completions
        for candidate in record.candidates:
            assert any(
                (c.answer, c.correct, c.tokens) == (candidate.answer, candidate.correct, candidate.tokens)
                for c in completions
            )
        chosen = [c for c in completions if c.text == record.text]
        assert chosen
        assert chosen[0].answer == record.answer


def test_the_same_samples_replayed_give_the_same_answers_and_costs(saved: Path, tmp_path: Path) -> None:
    """Votes over all sixteen samples of both seeds: any order of them, one answer and one cost."""
    what = recipe(
        suite="sums",
        recording=str(saved),
        strategies=("best_of_n(n=16, select=majority)",),
        budgets=(),
        limit=None,
        seeds=3,
    )
    assert run(what, tmp_path / "again") == 0
    recording = open_recording(saved)
    expected = vote_estimate(recording, 16, Select.MAJORITY).accuracy.value
    tokens = token_estimate(recording, 16)
    with Store.read(tmp_path / "again") as store:
        records = list(store.records())
    assert len(records) == 18
    assert not any(record.censored for record in records)
    assert tokens is not None
    assert sum(record.usage.tokens or 0 for record in records) / 18 == pytest.approx(tokens.value)
    assert sum(bool(record.correct) for record in records) / 18 == pytest.approx(expected, abs=0.17)


def test_fewer_samples_of_a_saved_run_are_what_estimates_say(saved: Path, tmp_path: Path) -> None:
    """Replays of 4 of 16 samples average to the estimate over subsets."""
    what = recipe(
        suite="sums",
        recording=str(saved),
        strategies=("best_of_n(n=4, select=majority)",),
        budgets=(),
        limit=None,
        seeds=12,
    )
    assert run(what, tmp_path / "again", parallel=32) == 0
    expected = vote_estimate(open_recording(saved), 4, Select.MAJORITY, subsets=2000).accuracy.value
    with Store.read(tmp_path / "again") as store:
        rights = [bool(record.correct) for record in store.records()]
    assert sum(rights) / len(rights) == pytest.approx(expected, abs=0.13)


def test_pass_at_k_of_a_saved_run_rises_with_k(saved: Path) -> None:
    recording = open_recording(saved)
    values = [pass_estimate(recording, k).value for k in (1, 2, 4, 8, 16)]
    assert values == sorted(values)


@pytest.mark.parametrize(
    ("strategy", "budget", "reason"),
    [
        ("greedy", "tokens=400", "is not best_of_n"),
        ("best_of_n(n=2, inner=greedy)", "tokens=4096", "what each of them spent is not recorded"),
        ("best_of_n(n=none)", "tokens=400", "n was left to the budget"),
        ("best_of_n(n=8)", "tokens=4096", "it stopped at the first verified candidate|candidates of 8"),
        ("best_of_n(n=8, stop_on_verified=false)", "tokens=120", "was cut|candidates of 8"),
    ],
)
def test_samples_that_are_not_exchangeable_are_refused(
    tmp_path: Path, strategy: str, budget: str, reason: str
) -> None:
    run(recipe(strategies=(strategy,), budgets=(budget,), limit=4), tmp_path / "run")
    with pytest.raises(UsageError, match=reason):
        open_recording(tmp_path / "run")


@pytest.mark.parametrize(
    ("reason", "refused"), [("exhausted", False), ("budget", True), ("deadline", True), ("cancelled", True)]
)
def test_a_candidate_cut_by_its_own_length_is_as_good_as_another(
    tmp_path: Path, reason: str, refused: bool
) -> None:
    """A context or `--max-tokens` holds for each candidate alone, a budget for all of them together."""
    cut = made_candidate(stop="length", complete=False, answer="1", verified=None)
    what = {"strategies": ("best_of_n(n=2, stop_on_verified=false)",), "limit": 2}
    candidates = (cut, made_candidate(verified=None))
    folder = write_run(
        tmp_path, lambda task, _: made_record(task, reason=reason, candidates=candidates), **what
    )
    if refused:
        with pytest.raises(UsageError, match="was cut"):
            open_recording(folder)
    else:
        recording = open_recording(folder)
        recording.check_whole()
        assert [c.answer for c in recording.problems[0].completions] == ["1", candidates[1].answer]


def test_a_second_setting_that_is_exchangeable_is_found_among_others(tmp_path: Path) -> None:
    what = recipe(strategies=("greedy", SAMPLES), budgets=("tokens=4096",), limit=3)
    run(what, tmp_path / "run")
    recording = open_recording(tmp_path / "run")
    assert recording.most_samples == 8
    assert "best_of_n(n=8" in recording.name
