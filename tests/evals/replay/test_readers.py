"""Readers of recorded outputs, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.replay.game24 import answer_of
from branchwise.evals.replay.readers import open_recording
from support.evaluating import write_chains


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


STRICT = {"filter": "strict-match", "exact_match": 0.0, "filtered_resps": ["[invalid]"]}


def test_of_several_filters_the_named_one_counts(tmp_path: Path) -> None:
    path = lm_eval_file(tmp_path, entry(0), entry(0, **STRICT), entry(1), entry(1, **STRICT))
    for name, right in (("flexible-extract", True), ("strict-match", False)):
        recording = open_recording(path, name)
        assert [len(p.completions) for p in recording.problems] == [1, 1]
        assert [p.completions[0].correct for p in recording.problems] == [right, right]


def test_several_filters_are_listed_where_none_is_named(tmp_path: Path) -> None:
    path = lm_eval_file(tmp_path, entry(), entry(**STRICT))
    with pytest.raises(UsageError, match=r"--filter: flexible-extract, strict-match$") as caught:
        open_recording(path)
    assert "\n" not in str(caught.value)


def test_a_filter_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    path = lm_eval_file(tmp_path, entry())
    assert open_recording(path, "flexible-extract") == open_recording(path)
    with pytest.raises(UsageError, match=r"--filter strict: not in .* which has flexible-extract$"):
        open_recording(path, "strict")
    chains = write_chains(tmp_path / "chains.json")
    with pytest.raises(UsageError, match=r"--filter strict: .*chains.json holds no lm-eval samples"):
        open_recording(chains, "strict")


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


CHAINS = {"idx": 0, "ys": ["Answer: 6*4 = 24"], "infos": [{"r": 1}]}
OUTPUTS = {"idx": 0, "question": "q", "gt": "1", "code": ["c"], "pred": ["1"], "score": [True]}
LOGGED = {"doc_id": 0, "resps": [["text"]], "target": "1", "doc": {"question": "q"}}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([CHAINS, CHAINS], "two entries are of problem 'game24:0'"),
        ([{**CHAINS, "ys": [], "infos": []}], "has no completion"),
        ([{**CHAINS, "infos": []}], "malformed"),
        ([{**CHAINS, "usage_so_far": {"completion_tokens": -5, "prompt_tokens": 1}}], "-5 tokens"),
        ([{**OUTPUTS, "pred_score": [[float("nan")]]}], "has the reward nan"),
        ([{**OUTPUTS, "pred_score": [[]]}], "malformed"),
        ([{**OUTPUTS, "pred": []}], "malformed"),
        ([{**LOGGED, "resps": [3]}], "malformed"),
        ([LOGGED, 3], "malformed"),
        ([LOGGED, {"a": 1}], "no field 'doc_id'"),
        ([None], "no known format"),
        ([], "no known format"),
    ],
)
def test_a_malformed_entry_is_refused_in_one_line(tmp_path: Path, entries: list[object], said: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(entries))
    with pytest.raises(UsageError) as refused:
        open_recording(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_line_separator_inside_of_a_text_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "samples_x.jsonl"
    entry = {**LOGGED, "resps": [["one\u2028two\x85three"]]}
    path.write_text("\ufeff" + json.dumps(entry, ensure_ascii=False) + "\r\n", encoding="utf-8")
    (problem,) = open_recording(path).problems
    assert problem.completions[0].text == "one\u2028two\x85three"
    path.write_text("{}\n{", encoding="utf-8")
    with pytest.raises(UsageError, match="line 2"):
        open_recording(path)
