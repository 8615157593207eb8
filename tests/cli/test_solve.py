"""`solve` on the reference model: what it prints, in each form."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.command_line import Branchwise

PROBLEM = "Use 3, 7 and 12 to make 43"
SEARCH = ("--strategy", "best_of_n(n=16)", "--seed", "5", "--budget", "tokens=2048", "--kv-memory", "64MiB")


def solved(branchwise: Branchwise, *arguments: str) -> dict[str, Any]:
    ran = branchwise("solve", *arguments, "--json")
    assert ran.err == ""
    assert ran.out.count("\n") == 1
    return {**json.loads(ran.out), "status": ran.status}


def test_json_is_one_object_of_the_designed_shape(branchwise: Branchwise) -> None:
    result = solved(branchwise, PROBLEM, *SEARCH)
    assert result["status"] == (0 if result["answer"] is not None else 1)
    assert result["model"] == "reference"
    assert result["strategy"]["type"] == "best_of_n"
    assert result["strategy"]["n"] == 16
    assert result["seed"] == 5
    assert result["budget"] == {"tokens": 2048}
    usage = result["usage"]
    assert {"tokens", "flops", "prompt_tokens", "scored_tokens", "discarded_tokens", "engine"} <= set(usage)
    assert 0 < usage["tokens"] <= 2048
    assert usage["engine"]["kv_peak_tokens"] < usage["engine"]["kv_unshared_peak_tokens"]
    for candidate in result["candidates"]:
        assert {"answer", "score", "tokens", "stop", "complete"} <= set(candidate)
    if result["verified"]:
        tree = ast.parse(str(result["answer"]), mode="eval")
        numbers = [int(str(node.value)) for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        assert sorted(numbers) == [3, 7, 12]
        assert eval(compile(tree, "answer", "eval")) == 43


def test_the_same_seed_gives_the_same_output(branchwise: Branchwise) -> None:
    first, second = (solved(branchwise, PROBLEM, *SEARCH) for _ in range(2))
    first["usage"].pop("engine")
    second["usage"].pop("engine")
    assert first == second


def test_set_goes_before_the_strategy(branchwise: Branchwise) -> None:
    result = solved(branchwise, PROBLEM, *SEARCH, "--set", "n=3", "--set", "select=majority")
    assert result["strategy"]["n"] == 3
    assert result["strategy"]["select"] == "majority"


@pytest.mark.parametrize("tokens", [1, 7, 50])
def test_a_scarce_budget_is_kept_and_is_no_error(branchwise: Branchwise, tokens: int) -> None:
    result = solved(
        branchwise, "Use 3, 7, 12 and 18 to make 45", "--budget", f"tokens={tokens}", "--seed", "1"
    )
    assert result["usage"]["tokens"] <= tokens
    assert result["status"] == (0 if result["answer"] is not None else 1)
    if result["reason"] == "budget":
        assert result["usage"]["tokens"] == tokens


def test_plain_lines_go_to_a_pipe(branchwise: Branchwise) -> None:
    ran = branchwise("solve", PROBLEM, *SEARCH)
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert "strategy: best_of_n" in lines
    assert "budget: tokens=2048" in lines
    (memory,) = [line for line in lines if line.startswith("memory: ")]
    assert re.fullmatch(
        r"memory: weights \d+ MB, KV up to [\d,]+ MB \(policy [\d,]+, draft .* positions\)", memory
    )
    names = [line.partition(":")[0] for line in lines[lines.index("budget: tokens=2048") :]]
    for name in ("answer", "verified", "ended", "tokens", "candidates", "kv", "seconds", "seed"):
        assert name in names
    assert "\x1b" not in ran.out


def test_the_default_budget_is_printed(branchwise: Branchwise) -> None:
    assert "budget: tokens=16384" in branchwise("solve", PROBLEM, "--strategy", "greedy").out.splitlines()


@pytest.mark.parametrize(("suffix", "start"), [(".json", "{"), (".graphml", "<"), (".mmd", "flowchart")])
def test_the_graph_is_written(branchwise: Branchwise, tmp_path: Path, suffix: str, start: str) -> None:
    path = tmp_path / f"graph{suffix}"
    branchwise("solve", PROBLEM, *SEARCH, "--graph", str(path))
    assert path.read_text().startswith(start)


def test_many_problems_give_a_line_each(branchwise: Branchwise, tmp_path: Path) -> None:
    path = tmp_path / "problems"
    path.write_text(f'{PROBLEM}\nWhy?\n{{"problem": "12 + 7*3 - 5", "id": "sum"}}\n{{"id": 1}}\n{PROBLEM}\n')
    ran = branchwise("solve", "--input", str(path), *SEARCH)
    assert ran.err == ""
    results = [json.loads(line) for line in ran.out.splitlines()]
    assert [result["line"] for result in results] == [1, 2, 3, 4, 5]
    assert [result["id"] for result in results] == [None, None, "sum", "1", None]
    assert [result.get("status") for result in results] == [None, 2, None, 2, None]
    assert ran.status == 2
    assert results[0]["answer"] == results[4]["answer"]


def test_a_problem_alone_gives_what_it_gives_among_others(branchwise: Branchwise, tmp_path: Path) -> None:
    path = tmp_path / "problems"
    path.write_text(f"{PROBLEM}\n12 + 7*3 - 5\nUse 2, 3 and 5 to make 11\n")
    alone = solved(branchwise, PROBLEM, *SEARCH)
    among = json.loads(branchwise("solve", "--input", str(path), *SEARCH).out.splitlines()[0])
    for name in ("answer", "text", "score", "verified", "reason", "candidates"):
        assert among[name] == alone[name]
