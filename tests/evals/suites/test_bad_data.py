"""Data files as people really have them: read where their meaning is plain, else refused in one line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.suites import reference
from branchwise.evals.suites.files import read_file
from branchwise.evals.suites.jsonl import jsonl_suite
from branchwise.evals.suites.registry import open_suite
from hypothesis import given
from hypothesis import strategies as st

GOOD = '{"question": "1+1", "gold": "2"}\n'


def written(folder: Path, data: str | bytes, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def samples(path: Path, **mapping: str):
    return jsonl_suite(f"jsonl:{path}", path, mapping).samples(None, 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "holds no rows"),
        ("\n \r\n", "holds no rows"),
        (GOOD + '{"question": "2+2"\n', "line 2: not JSON"),
        ("[1, 2]\n", "line 1: not a JSON object"),
        ('{"question": "1+1", "gold": NaN}\n', "line 1: not JSON"),
        ('{"question": "1+1", "gold": 1e400}\n', "line 1: not JSON"),
        (b"\xff\xfe{\x00", "is no UTF-8 text (byte 0)"),
        (GOOD.encode() + b"\xff", "is no UTF-8 text (byte 33)"),
        ('{"question": "1+1"}\n', "row 1: no field 'gold' or 'answer' or 'target'; it has question"),
        ('{"question": "1+1", "gold": null}\n', "row 1: its field 'gold' is null"),
        ('{"question": "1+1", "gold": {"value": 2}}\n', "row 1: its gold is an object"),
        ('{"question": "1+1", "gold": [2]}\n', "row 1: its gold is a list"),
        ('{"question": "1+1", "gold": "  "}\n', "row 1: its gold is empty"),
        ('{"question": "1+1", "gold": "so #### "}\n', "row 1: its gold is empty"),
        ('{"question": " ", "gold": "2"}\n', "row 1: its field 'question' is empty"),
        ('{"question": ["1+1"], "gold": "2"}\n', "row 1: its field 'question' is a list"),
        ('{"question": "1+1", "gold": "2", "id": [1]}\n', "row 1: its id is a list"),
        (2 * '{"question": "1+1", "gold": "2", "id": "a"}\n', "two rows have the id 'a'"),
        ('{"question": "q", "gold": {}, "options": {"A": "x", "B": "y"}}\n', "its gold {} is no option"),
        ('{"question": "q", "gold": true, "options": ["x", "y"]}\n', "its gold True is no option"),
        ('{"question": "q", "gold": 0, "options": ["x", null]}\n', "one of its options is null"),
        ('{"question": "q", "gold": 0, "options": "xy"}\n', "its options are no list"),
    ],
)
def test_what_no_suite_could_use_is_refused_with_its_row(
    tmp_path: Path, data: str | bytes, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        samples(written(tmp_path, data))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["integer", "rational", "decimal", "percent"])
def test_a_gold_that_is_not_of_its_declared_type_is_refused(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, GOOD + '{"question": "1+1", "gold": "nan"}\n')
    with pytest.raises(UsageError, match=f"row 2: its gold 'nan' is no {kind}; no answer could be right"):
        samples(path, type=kind)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace("\n", "\r\n"),
        "\n\n" + GOOD.rstrip(),
        '{"question": "1+1", "gold": 2.0, "id": null, "level": null}',
    ],
    ids=["byte order mark", "CRLF", "blank lines and no last one", "null where a default stands"],
)
def test_the_marks_of_other_systems_are_no_fault(tmp_path: Path, data: str | bytes) -> None:
    (sample,) = samples(written(tmp_path, data))
    assert (sample.problem, sample.gold.value, sample.level) == ("1+1", "2", None)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_in_a_row_is_one_row(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """U+2028, U+0085 and form feeds, which JSON leaves as they are, end no line."""
    row = {"question": text, "gold": "2"}
    path = written(tmp_path_factory.mktemp("rows"), json.dumps(row, ensure_ascii=False) + "\n" + GOOD)
    assert list(read_file(path)) == [row, {"question": "1+1", "gold": "2"}]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("data.jsonl.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03garbage", "cannot be read"),
        ("data.jsonl.gz", gzip.compress(GOOD.encode(), mtime=0)[:-9], "cannot be read"),
        ("data.jsonl.gz", GOOD.encode(), "cannot be read (Not a gzipped file"),
        ("data.csv", b"a,b\n1,2,3\n", "line 2: has more columns than its first line"),
        ("data.csv", b'a,b\n"' + b"x" * 200_000, "no CSV"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        list(read_file(written(tmp_path, data, name)))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("suite", "name", "row", "said"),
    [
        ("gsm8k", "t.jsonl", '{"question": "q", "answer": "no mark"}', "has no '#### number'"),
        ("gsm8k", "t.jsonl", '{"question": "q", "answer": "so ####  "}', "has no '#### number'"),
        ("gsm8k", "t.jsonl", '{"question": "q", "answer": {"a": 1}}', "'answer' is an object"),
        ("math500", "t.jsonl", '{"problem": "p", "answer": ""}', "'answer' is empty"),
        ("aime24", "t.jsonl", '{"problem": "p", "answer": null}', "'answer' is null"),
        ("svamp", "t.jsonl", '{"Body": "b", "Question": [], "Answer": 1}', "'Question' is a list"),
        ("game24", "24.csv", "Puzzles\n1 2 3 ²", "is no puzzle of four numbers"),
        ("game24", "24.csv", "Puzzles\n1 2 3 999999999999", "is no puzzle of four numbers"),
        ("mbpp", "t.jsonl", '{"task_id": "x"}', "its task_id 'x' is no whole number"),
        ("mbpp", "t.jsonl", '{"task_id": 11, "test_list": [], "code": "f=1", "text": "t"}', "its tests []"),
        ("mbpp", "t.jsonl", '{"task_id": 11, "test_list": "f", "code": "f=1", "text": "t"}', "its tests 'f'"),
        (
            "mbpp", "t.jsonl",
            '{"task_id": 11, "test_list": ["assert f("], "code": "f=1", "text": "t"}', "is no Python",
        ),
    ],
)  # fmt: skip
def test_a_malformed_row_of_a_public_set_is_refused(
    tmp_path: Path, suite: str, name: str, row: str, said: str
) -> None:
    path = written(tmp_path, row + "\n", name)
    with pytest.raises(UsageError) as refused:
        open_suite(suite, path, allow_unsandboxed=True).samples(None, 0)
    assert said in str(refused.value)
    assert "-0" in str(refused.value)  # the row


@pytest.mark.parametrize("suite", ["countdown", "arithmetic", "jsonl:x.jsonl", "reasoning_gym:gcd"])
def test_data_that_a_suite_would_not_read_is_refused(suite: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"suite '{suite}': reads no --data"):
        open_suite(suite, tmp_path)


@pytest.mark.parametrize("suite", ["countdown", "countdown4"])
def test_a_limit_beyond_what_a_generator_has_ends_and_says_what_there_is(
    suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: Callable[..., object] = reference.countdown.generate
    few = [drawn(reference.random.Random(i), reference.Split.HELD_OUT, 3) for i in range(40)]
    monkeypatch.setattr(reference.countdown, "generate", lambda rng, split, count: rng.choice(few))
    monkeypatch.setattr(reference, "REPEATS_MAX", 2000)
    with pytest.raises(UsageError, match=r"limit 10000: suite .* has about \d+ different problems; give \d+"):
        open_suite(suite).samples(10_000, 0)
    assert len(open_suite(suite).samples(20, 0)) == 20
