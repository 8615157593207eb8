"""Data for the suites: the real files where BRANCHWISE_DATA says they are, and a small synthetic twin."""

import gzip
import json
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public data sets. Skips where BRANCHWISE_DATA is unset; fails where it is set and the
    folder is missing."""
    folder = os.environ.get("BRANCHWISE_DATA")
    if not folder:
        pytest.skip("BRANCHWISE_DATA is not set: no public data sets to read")
    if not Path(folder).is_dir():
        pytest.fail(f"BRANCHWISE_DATA={folder!r} is no folder")
    return Path(folder)


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    """A JSONL file, gzipped where its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def twin_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of our own in the layout and with the fields of the public ones; BRANCHWISE_DATA is unset."""
    monkeypatch.delenv("BRANCHWISE_DATA", raising=False)
    write_jsonl(
        tmp_path / "gsm8k/test.jsonl",
        [
            {"question": "Two hens lay 3 eggs a day each. Eggs a week?", "answer": "2*3=<<2*3=6>>6\n#### 42"},
            {"question": "A town of 1,000 doubles. How many people?", "answer": "#### 2,000"},
            {"question": "1 of 4 apples is red. What percent is that?", "answer": "#### 25"},
            {"question": "He owes 3 and pays 1. What is his balance?", "answer": "#### -2"},
        ],
    )
    write_jsonl(
        tmp_path / "math500/test.jsonl",
        [
            {"problem": "Point?", "answer": r"\left( 3, \frac{\pi}{2} \right)", "subject": "Precalculus",
             "level": 2, "unique_id": "test/precalculus/1.json"},
            {"problem": "Roots?", "answer": r"1 \pm \sqrt{19}", "level": 5,
             "unique_id": "test/algebra/2.json"},
        ],
    )  # fmt: skip
    write_jsonl(tmp_path / "aime24/test.jsonl", [{"id": 7, "problem": "Find n.", "answer": "025"}])
    write_jsonl(tmp_path / "amc23/test.jsonl", [{"id": 0, "problem": "How far?", "answer": 27.0}])
    write_jsonl(
        tmp_path / "svamp/test.jsonl",
        [{"ID": "chal-1", "Body": "There are 8 pens in 2 boxes", "Question": "How many in each?",
          "Answer": 4.0, "Type": "Common-Division", "Equation": "( 8.0 / 2.0 )"}],
    )  # fmt: skip
    (tmp_path / "game24").mkdir()
    (tmp_path / "game24/24.csv").write_text(
        "Rank,Puzzles,AMT (s),Solved rate\n1,1 1 4 6,4.4,99.20%\n2,1 2 4 7,5,98%\n3,3 3 8 8,90,20%\n"
    )
    write_jsonl(
        tmp_path / "humaneval/HumanEval.jsonl.gz",
        [
            {
                "task_id": "HumanEval/0",
                "prompt": "from typing import List\n\n\ndef add_all(numbers: List[int]) -> int:\n"
                '    """ Sum.\n    >>> add_all([1, 2])\n    3\n    """\n',
                "entry_point": "add_all",
                "canonical_solution": "    return sum(numbers)\n",
                "test": "def check(candidate):\n    assert candidate([1, 2]) == 3\n"
                "    assert candidate([]) == 0\n",
            }
        ],
    )
    write_jsonl(
        tmp_path / "mbpp/mbpp.jsonl",
        [
            {"text": "Write a function to add.", "code": "def sum(a, b):\r\n    return a + b", "task_id": 11,
             "test_setup_code": "", "test_list": ["assert sum(1, 2) == 3", "assert sum(0, 0) == 0"]},
            {"text": "Train row.", "code": "def g(): return 1", "task_id": 700,
             "test_list": ["assert g() == 1"]},
        ],
    )  # fmt: skip
    return tmp_path
