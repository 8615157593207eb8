"""Many problems: order, bad lines, the worst status."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from branchwise.engine.errors import BranchwiseError, UsageError
from branchwise.reasoning.cli.batch import Line, Outcome, read_lines, solve_lines


def test_text_and_json_lines_mix(tmp_path: Path) -> None:
    path = tmp_path / "problems"
    path.write_bytes(
        b"\xef\xbb\xbf1 + 1\r\n\n"
        b'{"problem": "2 + 2", "id": "second"}\n'
        b'{"problem": 7}\n'
        b'{"id": 9, "problem": " "}\n'
        b"{broken\n"
        b"\xff\xfe\n"
        b"[1]"
    )
    lines = read_lines(str(path))
    assert [(line.number, line.id, line.text) for line in lines if line.error is None] == [
        (1, None, "1 + 1"),
        (3, "second", "2 + 2"),
        (8, None, "[1]"),
    ]
    bad = {line.number: line.error or "" for line in lines if line.error is not None}
    assert list(bad) == [4, 5, 6, 7]
    assert all(error.startswith(f"line {number}: ") for number, error in bad.items())


@pytest.mark.parametrize(("content", "part"), [(None, "cannot be read"), ("\n \n", "holds no problem")])
def test_an_input_without_problems_is_refused(tmp_path: Path, content: str | None, part: str) -> None:
    path = tmp_path / "problems"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=part):
        read_lines(str(path))


async def _solve_numbers(line: Line) -> Outcome:
    """Later lines are done sooner."""
    await anyio.sleep(0.02 / line.number)
    match line.text:
        case "refuse":
            raise UsageError("refused")
        case "fail":
            raise BranchwiseError("failed")
        case "crash":
            raise RuntimeError("crashed")
    return Outcome(result={"answer": line.text}, status=0 if line.text else 1)


def _run(texts: list[str], *, jobs: int = 4) -> tuple[int, list[dict[str, Any]]]:
    lines = [Line(number=index, id=None, text=text) for index, text in enumerate(texts, start=1)]
    written: list[dict[str, Any]] = []

    async def run() -> int:
        return await solve_lines(lines, _solve_numbers, written.append, jobs=jobs)

    return anyio.run(run), written


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_results_come_in_the_order_of_the_input(jobs: int) -> None:
    status, written = _run(["a", "b", "c", "d", "e"], jobs=jobs)
    assert status == 0
    assert [entry["answer"] for entry in written] == ["a", "b", "c", "d", "e"]
    assert [entry["line"] for entry in written] == [1, 2, 3, 4, 5]


def test_a_bad_line_leaves_the_rest_alone() -> None:
    status, written = _run(["a", "refuse", "crash", "b"])
    assert status == 3
    assert [entry["answer"] for entry in written] == ["a", None, None, "b"]
    assert written[1]["error"] == "refused"
    assert written[1]["status"] == 2
    assert written[2]["error"] == "RuntimeError: crashed"


@pytest.mark.parametrize(
    ("texts", "worst"), [(["a", ""], 1), (["", "refuse"], 2), (["refuse", "fail", "a"], 3)]
)
def test_the_status_is_the_worst(texts: list[str], worst: int) -> None:
    assert _run(texts)[0] == worst


def test_no_more_than_the_given_jobs_run_at_a_time() -> None:
    running = most = 0

    async def solve(line: Line) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1
        return Outcome(result={}, status=0)

    lines = [Line(number=number, id=None, text="x") for number in range(1, 20)]

    async def run() -> int:
        return await solve_lines(lines, solve, lambda _: None, jobs=3)

    anyio.run(run)
    assert most == 3


def test_a_line_nested_too_deep_is_that_lines_error(tmp_path: Path) -> None:
    path = tmp_path / "problems"
    path.write_text('{"problem": ' + "[" * 100_000 + "]" * 100_000 + "}\n1 + 1\n")
    first, second = read_lines(str(path))
    assert first.error is not None
    assert first.error.startswith("line 1: not a JSON object")
    assert (second.text, second.error) == ("1 + 1", None)
