"""Readers of recorded outputs, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.replay.game24 import answer_of
from branchwise.evals.replay.readers import open_recording


def lm_eval_file(tmp_path: Path, *entries: dict[str, Any]) -> Path:
    path = tmp_path / "samples_gsm8k_2026.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)))
    return path


def entry(doc_id: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {"question": "How many?"},
        "target": "so #### 1,234",
        "resps": [["The answer is 1234."]],
        "filtered_resps": ["1234"],
        "filter": "flexible-extract",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
        **changes,
    }


def test_a_single_response_is_graded_as_its_metric_says(tmp_path: Path) -> None:
    recording = open_recording(lm_eval_file(tmp_path, entry(0), entry(1, exact_match=0.0)))
    assert [p.completions[0].correct for p in recording.problems] == [True, False]
    assert recording.problems[0].problem == "How many?"
    assert recording.problems[0].completions[0].tokens is None


@pytest.mark.pins("lm-eval#3351")
@pytest.mark.pins("lm-eval#3510")
def test_of_repeated_responses_each_is_graded_not_only_the_first(tmp_path: Path) -> None:
    several = entry(resps=[["answer is 1234", "answer is 5", "answer is 1,234"]], filtered_resps=["1234"])
    (problem,) = open_recording(lm_eval_file(tmp_path, several)).problems
    assert [c.correct for c in problem.completions] == [True, False, True]


def test_a_second_filter_of_the_same_responses_adds_none(tmp_path: Path) -> None:
    recording = open_recording(lm_eval_file(tmp_path, entry(), entry(filter="strict-match", exact_match=0.0)))
    assert [len(p.completions) for p in recording.problems] == [1]
    assert recording.problems[0].completions[0].correct is True


def test_a_folder_with_one_file_of_samples_stands_for_it(tmp_path: Path) -> None:
    lm_eval_file(tmp_path, entry())
    assert len(open_recording(tmp_path).problems) == 1


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", json.dumps(entry(resps=[[["-1.5", "False"]]])), "has log-likelihoods"),
        ("a.jsonl", "{", "cannot be read"),
        ("a.jsonl", '{"some": "thing"}', "no known format"),
        ("a.json", '{"ys": []}', "not a list"),
        ("a.json", "[]", "no known format"),
        ("a.json", '[{"ys": ["x"], "infos": [{"q": 1}], "idx": 1}]', "missing required field"),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_one_line(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=reason) as caught:
        open_recording(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        open_recording(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Steps:\n1 + 2 = 3\nAnswer: (1 + 2) * 8 = 24", "(1 + 2) * 8"),
        ("Answer: 1 = 24\nAnswer: 2 * 12 = 24\n", "2 * 12"),
        ("Answer: None", None),
        ("Steps only", None),
    ],
)
def test_the_last_expression_of_a_chain_is_its_answer(text: str, answer: str | None) -> None:
    assert answer_of(text) == answer
