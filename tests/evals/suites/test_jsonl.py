"""Any JSONL file as a suite: field maps, inferred types, multiple choice."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.suites.base import problem_of, read_answer
from branchwise.evals.suites.registry import open_suite
from branchwise.verifiers.answer_type import AnswerType

from .conftest import write_jsonl

OPTIONS = ["red", "green", "blue", "grey"]


def rows(path: Path, *given: dict[str, object], **mapping: str):
    return open_suite(f"jsonl:{write_jsonl(path, list(given))}", mapping=mapping)


def test_fields_are_mapped_and_the_type_declared(tmp_path: Path):
    suite = rows(
        tmp_path / "mine.jsonl",
        {"problem": "1+1?", "answer": "#### 2", "uid": 7, "hard": 3},
        question="problem",
        gold="answer",
        id="uid",
        level="hard",
        type="integer",
    )
    [sample] = suite.samples(None, 0)
    assert (sample.id, sample.problem, sample.level) == ("7", "1+1?", "3")
    assert (sample.gold.type, sample.gold.value) == (AnswerType.INTEGER, "2")
    assert suite.grade(sample, "2.0", "").correct is True
    assert suite.grade(sample, "12", "").correct is False


def test_without_a_map_the_usual_names_are_found_and_types_inferred(tmp_path: Path):
    suite = rows(
        tmp_path / "a.jsonl",
        {"question": "a", "answer": 70.0},
        {"problem": "b", "gold": "1/2", "level": 2},
        {"prompt": "c", "target": r"\sqrt{2}"},
        {"question": "d", "answer": "50%"},
    )
    samples = suite.samples(None, 0)
    assert [sample.id for sample in samples] == ["a-1", "a-2", "a-3", "a-4"]
    assert [sample.gold.type for sample in samples] == [
        AnswerType.INTEGER,
        AnswerType.RATIONAL,
        AnswerType.EXPRESSION,
        AnswerType.EXPRESSION,
    ]
    assert samples[0].gold.value == "70"
    assert samples[1].level == "2"


@pytest.mark.pins("specreason spec_reason.py")
def test_the_place_of_the_right_option_is_shuffled_by_seed_and_the_gold_follows(tmp_path: Path):
    path = tmp_path / "choice.jsonl"
    suite = rows(path, *({"id": i, "question": "Q?", "options": OPTIONS, "answer": 0} for i in range(200)))
    samples = suite.samples(None, 0)
    places = Counter(sample.gold.value for sample in samples)
    assert set(places) == set("ABCD")
    assert min(places.values()) > 25
    for sample in samples:
        shown = msgspec.json.decode(sample.meta["options"], type=list[str])
        assert sorted(shown) == sorted(OPTIONS)
        assert f"{sample.gold.value}) red" in sample.problem
    assert samples == open_suite(f"jsonl:{path}").samples(None, 0)
    assert [s.gold for s in samples] != [s.gold for s in suite.samples(None, 1)]


@pytest.mark.parametrize(
    ("options", "gold"),
    [
        (OPTIONS, 2),
        (OPTIONS, "C"),
        (OPTIONS, "(c)"),
        (OPTIONS, "blue"),
        ({"A": "red", "B": "green", "C": "blue"}, "C"),
        (["4", "2", "0"], 2),
        (["2", "0"], "0"),
        ([2, 0], 0),
    ],
)
def test_golds_may_be_letters_indices_or_texts(tmp_path: Path, options: object, gold: object):
    suite = rows(tmp_path / "x.jsonl", {"question": "Q?", "choices": options, "gold": gold})
    [sample] = suite.samples(None, 3)
    shown = msgspec.json.decode(sample.meta["options"], type=list[str])
    assert shown[ord(sample.gold.value) - ord("A")] in ("blue", "0")


def test_choices_are_graded_by_letter_or_by_the_options_text(tmp_path: Path):
    suite = rows(tmp_path / "x.jsonl", {"question": "Q?", "options": OPTIONS, "answer": "blue"})
    [sample] = suite.samples(None, 0)
    right = sample.gold.value
    wrong = next(letter for letter in "ABCD" if letter != right)
    for answer in (right, f"({right.lower()})", f"{right}) blue", "Blue", rf"\text{{{right}}}"):
        assert suite.grade(sample, answer, "").correct is True, answer
    for answer in (wrong, "red", "E", "blue or red", "7", None):
        assert suite.grade(sample, answer, "").correct is False, answer
    for text in (f"I pick ({right}).", f"After 12 tries: ({right}).", f"So the answer is {right}."):
        assert suite.grade(sample, read_answer(sample, text), text).correct is True, text
    assert read_answer(sample, "After 12 tries I do not know.") is None


def test_letters_vote_together_however_they_are_written(tmp_path: Path):
    suite = rows(tmp_path / "x.jsonl", {"question": "Q?", "options": OPTIONS, "answer": "blue"})
    task = problem_of(suite.samples(None, 0)[0]).task
    assert task is not None
    assert {task.canonical(text) for text in ("B", "(b)", "B) blue", r"\text{(B)}")} == {"B"}
    assert task.canonical("Dark  Blue") == task.canonical("dark blue")
    assert task.canonical(" ") is None


@pytest.mark.parametrize(
    ("row", "mapping", "message"),
    [
        ({"question": "a"}, {}, r"x\.jsonl, row 1: no field 'gold' or 'answer' or 'target'; it has question"),
        ({"q": "a", "a": 1}, {"question": "q", "gold": "b"}, r"no field 'b'; it has a, q"),
        ({"q": "a"}, {"questions": "q"}, r"field role 'questions': not known; did you mean question"),
        ({"q": "a"}, {"type": "int"}, r"answer type 'int': not known; did you mean .*integer"),
        ({"q": "a"}, {"type": "code"}, r"programs are graded by tests"),
        ({"question": "a", "options": ["x"], "answer": 0}, {}, r"no list of 2 to 26"),
        ({"question": "a", "options": ["x", "x"], "answer": 0}, {}, r"two of its options are equal"),
        ({"question": "a", "options": ["x", "y"], "answer": "z"}, {}, r"its gold 'z' is no option"),
        ({"question": "a", "options": ["x", "y"], "answer": 5}, {}, r"its gold 5 is no option"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(
    tmp_path: Path, row: dict[str, object], mapping: dict[str, str], message: str
):
    with pytest.raises(UsageError, match=message) as caught:
        rows(tmp_path / "x.jsonl", row, **mapping).samples(None, 0)
    assert "\n" not in str(caught.value)


def test_ids_that_are_not_distinct_and_files_that_are_not_there(tmp_path: Path):
    suite = rows(tmp_path / "x.jsonl", *[{"id": 1, "question": "a", "answer": 1}] * 2)
    with pytest.raises(UsageError, match="two rows have the id '1'"):
        suite.samples(None, 0)
    with pytest.raises(UsageError, match=r"there is no file '.*nowhere\.jsonl'"):
        open_suite(f"jsonl:{tmp_path / 'nowhere.jsonl'}")
