"""Published tables from recorded outputs, without a model; and a small twin of each that always runs."""

import json
from pathlib import Path

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.replay.estimates import pass_estimate, token_estimate, vote_estimate
from branchwise.evals.replay.game24 import read_trees
from branchwise.evals.replay.readers import open_recording
from branchwise.evals.statistics.intervals import clustered_error, standard_error
from branchwise.verifiers.vote import Select
from support.data import data_path


def test_gpt4_chains_on_game_of_24_have_the_published_pass_at_k() -> None:
    recording = open_recording(data_path("game24_gpt4_logs") / "naive_cot_100.json")
    found = {k: 100 * pass_estimate(recording, k).value for k in (1, 5, 10, 25, 50, 100)}
    assert found == pytest.approx({1: 4.03, 5: 14.3, 10: 21.5, 25: 32.2, 50: 40.7, 100: 49.0}, abs=0.05)
    completion = sum(c.tokens or 0 for problem in recording.problems for c in problem.completions)
    prompt = sum(problem.prompt_tokens or 0 for problem in recording.problems)
    # The published 461,878 and 148,580 are the log's last running totals, whose count began anew at #932: the
    # first 32 problems are missing from them.
    assert (completion, prompt) == (461_878 + 212_984, 148_580 + 69_920)
    assert {problem.prompt_tokens for problem in recording.problems} == {2185}
    tokens = token_estimate(recording, 100)
    assert tokens is not None
    assert tokens.value == pytest.approx(6748.62)


def test_gpt4_chains_have_the_golden_clustered_error() -> None:
    recording = open_recording(data_path("game24_gpt4_logs") / "naive_cot_100.json")
    rows = [[float(c.correct is True) for c in problem.completions] for problem in recording.problems]
    naive = standard_error([value for row in rows for value in row])
    assert (naive, clustered_error(rows)) == pytest.approx((0.001967, 0.008103), abs=5e-7)


def test_gpt4_trees_on_game_of_24_have_the_published_rates_and_prompts() -> None:
    folder = data_path("game24_gpt4_logs")
    trees = read_trees(json.loads((folder / "tot_b5_value3.json").read_text()))
    assert sum(any(tree.kept) for tree in trees) == 69
    assert sum(tree.kept[0] for tree in trees) == 62
    prompt = sum(tree.prompt_tokens or 0 for tree in trees)
    assert (sum(tree.completion_tokens or 0 for tree in trees), prompt) == (547_859, 1_387_936)
    assert prompt / 148_580 == pytest.approx(9.3, abs=0.05)  # as published, against the cut-off total
    assert prompt / (100 * 2185) == pytest.approx(6.35, abs=0.005)  # against all 100 problems


def test_a_tree_is_not_replayed_as_samples() -> None:
    with pytest.raises(UsageError, match="holds trees"):
        open_recording(data_path("game24_gpt4_logs") / "tot_b5_value3.json")


def test_qwen_on_math_has_the_published_votes() -> None:
    recording = open_recording(data_path("qwen25math_bon8_math100") / "math_cot_100.jsonl")
    assert pass_estimate(recording, 1).value == pytest.approx(0.910)
    assert pass_estimate(recording, 8).value == pytest.approx(0.96)
    majority = vote_estimate(recording, 8, Select.MAJORITY)
    assert majority.accuracy.value == pytest.approx(0.93)
    assert majority.tied == pytest.approx(0.04)
    assert vote_estimate(recording, 8, Select.MAX_SCORE).accuracy.value == pytest.approx(0.94)
    assert vote_estimate(recording, 8, Select.WEIGHTED_VOTE).accuracy.value == pytest.approx(0.94)
    assert majority.tokens is None


def chains(tmp_path: Path) -> Path:
    """Four problems of four chains with 0, 1, 2 and 4 right ones, 10 tokens per chain in the mean."""
    log = [
        {
            "idx": right,
            "ys": [f"Answer: {'x' * (i + 1)} = 24" for i in range(4)],
            "infos": [{"r": int(i < right)} for i in range(4)],
            "usage_so_far": {"completion_tokens": 40 * (place + 1), "prompt_tokens": 5 * (place + 1)},
        }
        for place, right in enumerate((0, 1, 2, 4))
    ]
    path = tmp_path / "chains.json"
    path.write_text(json.dumps(log))
    return path


def test_chains_made_by_hand_have_pass_at_k_worked_out_by_hand(tmp_path: Path) -> None:
    recording = open_recording(chains(tmp_path))
    assert pass_estimate(recording, 1).value == pytest.approx((0 + 1 / 4 + 2 / 4 + 1) / 4)
    assert pass_estimate(recording, 2).value == pytest.approx((0 + 1 / 2 + 5 / 6 + 1) / 4)
    assert pass_estimate(recording, 4).value == pytest.approx(3 / 4)
    tokens = token_estimate(recording, 2)
    assert tokens is not None
    assert tokens.value == 20
    assert all(sum(c.tokens or 0 for c in problem.completions) == 40 for problem in recording.problems)


def test_nothing_is_estimated_beyond_what_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give 1 to 4"):
        pass_estimate(open_recording(chains(tmp_path)), 5)


def test_a_count_that_began_anew_takes_nothing_from_the_problem_behind_it(tmp_path: Path) -> None:
    path = chains(tmp_path)
    log = json.loads(path.read_text())
    for entry in log[2:]:  # the process was started again before the third problem
        entry["usage_so_far"]["completion_tokens"] -= 80
        entry["usage_so_far"]["prompt_tokens"] -= 10
    path.write_text(json.dumps(log))
    problems = open_recording(path).problems
    assert [sum(c.tokens or 0 for c in problem.completions) for problem in problems] == [40] * 4
    assert [problem.prompt_tokens for problem in problems] == [5] * 4


def outputs(tmp_path: Path) -> Path:
    """Two problems of four solutions: a clear majority against the reward, and a tie won by the first."""
    entries = [
        {
            "idx": 0,
            "question": "q",
            "gt": "1/2",
            "code": list("abcd"),
            "pred": ["0.5", r"\frac12", "3", "1/2"],
            "score": [True, True, False, True],
            "pred_score": [[-2.0], [0.5], [4.0], [1.0]],
        },
        {
            "idx": 1,
            "question": "r",
            "gt": "7",
            "code": list("efgh"),
            "pred": ["8", "7", "7", "8"],
            "score": [False, True, True, False],
            "pred_score": [[0.0], [1.0], [2.0], [0.0]],
        },
    ]
    path = tmp_path / "outputs.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)))
    return path


def test_outputs_made_by_hand_have_votes_worked_out_by_hand(tmp_path: Path) -> None:
    recording = open_recording(outputs(tmp_path))
    majority = vote_estimate(recording, 4, Select.MAJORITY)
    assert majority.accuracy.value == 0.5  # equal answers vote together; of a tie the first seen wins
    assert majority.tied == 0.5
    assert vote_estimate(recording, 4, Select.MAX_SCORE).accuracy.value == 0.5
    assert vote_estimate(recording, 4, Select.WEIGHTED_VOTE).accuracy.value == 1.0
    assert vote_estimate(recording, 1, Select.MAJORITY).accuracy.value == pytest.approx((3 / 4 + 1 / 2) / 2)


def test_votes_of_k_are_those_of_all_subsets_not_of_the_first_k(tmp_path: Path) -> None:
    # Problem 1 at k=2: 77 is right, 88 wrong, and of the four ties the first seen wins: 87, 87 wrong, 78, 78
    # right.
    recording = open_recording(outputs(tmp_path))
    estimate = vote_estimate(recording, 2, Select.MAJORITY)
    second = 3 / 6
    first = (3 + 1 + 1 + 0) / 6  # pairs of right ones; of the mixed pairs those with the right one first
    assert estimate.accuracy.value == pytest.approx((first + second) / 2)


def test_rules_by_score_need_scores(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no scores"):
        vote_estimate(open_recording(chains(tmp_path)), 2, Select.WEIGHTED_VOTE)
