"""Bad input: one line that says what was wrong and what would be right, exit status 2, no traceback."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from branchwise.reasoning.source import find_source
from cli.command_line import Branchwise, refused

PROBLEM = "Use 3 and 4 to make 7"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["no problem given", "--input"]),
        ([""], ["empty"]),
        (["  \n"], ["empty"]),
        (["caf\udce9"], ["problem", "UTF-8"]),
        ([PROBLEM, "again"], ["again"]),
        ([PROBLEM, "--strategy", "bestofn"], ["bestofn", "best_of_n"]),
        ([PROBLEM, "--strategy", ""], ["strategy"]),
        ([PROBLEM, "--strategy", "best_of_n(n=0)"], ["n", "0"]),
        ([PROBLEM, "--strategy", "best_of_n(n=many)"], ["many"]),
        ([PROBLEM, "--strategy", "best_of_n(n=3"], ["best_of_n(n=3"]),
        ([PROBLEM, "--strategy", "best_of_n(width=3)"], ["width"]),
        ([PROBLEM, "--strategy", "best_of_n(select=best)"], ["select", "best"]),
        ([PROBLEM, "--set", "n"], ["--set", "n=32"]),
        ([PROBLEM, "--set", "m=3"], ["m"]),
        ([PROBLEM, "--set", "n=-3"], ["-3"]),
        ([PROBLEM, "--budget", "tokens=-5"], ["tokens=-5"]),
        ([PROBLEM, "--budget", "tokens=many"], ["tokens=many"]),
        ([PROBLEM, "--budget", "token=5"], ["did you mean tokens"]),
        ([PROBLEM, "--budget", "4096"], ["tokens="]),
        ([PROBLEM, "--verifier", "replays"], ["replays", "replay"]),
        ([PROBLEM, "--model", "./no-such-model"], ["no-such-model", "reference"]),
        ([PROBLEM, "--model", "refrence"], ["refrence", "reference"]),
        ([PROBLEM, "--draft", "./no-such-model"], ["no-such-model"]),
        ([PROBLEM, "--device", "tpu"], ["tpu", "cpu"]),
        ([PROBLEM, "--dtype", "float8"], ["float8"]),
        ([PROBLEM, "--kv-memory", "much"], ["much", "2GiB"]),
        ([PROBLEM, "--step", "words"], ["words", "tokens:N"]),
        ([PROBLEM, "--seed", "-1"], ["seed", "-1"]),
        ([PROBLEM, "--seed", "x"], ["seed", "x"]),
        ([PROBLEM, "--temperature", "-1"], ["temperature", "-1"]),
        ([PROBLEM, "--buget", "tokens=5"], ["--buget", "--budget"]),
        ([PROBLEM, "--graph", "/proc/none/x.json"], ["/proc/none"]),
        ([PROBLEM, "--graph", "/proc/x.json"], ["/proc/x.json"]),
        ([PROBLEM, "--graph", "x.png"], ["x.png", ".json"]),
        ([PROBLEM, "--input", "-"], ["--input"]),
        ([PROBLEM, "--budget", "tokens=" + "9" * 5000], ["tokens=9999", "whole number"]),
        ([PROBLEM, "--kv-memory", "9" * 400], ["memory size", "2GiB"]),
        ([PROBLEM, "--step", "tokens:" + "9" * 5000], ["tokens:9999", "tokens:N"]),
        ([PROBLEM, "--threads", "9" * 22], ["--threads", "1024"]),
        ([PROBLEM, "--model", ""], ["model ''", "reference"]),
        ([PROBLEM, "--model", "x" * 5000], ["xxx", "no such folder"]),
        ([PROBLEM, "--graph", "/tmp/" + "x" * 300 + ".json"], ["xxx", "too long"]),
        ([PROBLEM, "--graph", "/tmp/" + "x" * 300 + "/x.json"], ["xxx", "too long"]),
        ([PROBLEM, "--seed", "\x1b[31m"], ["--seed \\x1b[31m"]),
        ([PROBLEM, "--input", "\0"], ["--input"]),
        (["--input", "no-such-file"], ["no-such-file"]),
        (["--input", "-", "--graph", "x.json"], ["--graph"]),
    ],
)
def test_what_needs_no_model_is_refused_before_one_is_opened(
    branchwise: Branchwise,
    arguments: list[str],
    parts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    # An import of what opens models would fail.
    monkeypatch.setitem(sys.modules, "branchwise.reasoning.cli.runs", None)
    refused(branchwise("solve", *arguments), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("problem", "parts"),
    [
        ("Why is the sky blue?", ["name another model"]),
        ("Use 3, 7 and 1200 to make 43", ["1200"]),
        ("Use 3, 7, 9, 11, 12 and 13 to make 43", ["6"]),
    ],
)
def test_what_the_reference_model_cannot_read_is_refused(
    branchwise: Branchwise, problem: str, parts: list[str]
) -> None:
    refused(branchwise("solve", problem), *parts)


def test_an_unknown_command_names_the_nearest(branchwise: Branchwise) -> None:
    refused(branchwise("sovle", PROBLEM), "sovle", "solve")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the reference policy, to be damaged."""
    return Path(shutil.copytree(find_source("reference").policy, tmp_path / "model"))


def test_an_empty_model_folder(branchwise: Branchwise, tmp_path: Path) -> None:
    refused(branchwise("solve", PROBLEM, "--model", str(tmp_path)), str(tmp_path))


def test_a_model_folder_without_a_tokenizer(branchwise: Branchwise, model: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink(missing_ok=True)
    refused(branchwise("solve", PROBLEM, "--model", str(model)), "tokenizer")


def test_truncated_safetensors(branchwise: Branchwise, model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused(branchwise("solve", PROBLEM, "--model", str(model)), "model.safetensors")


def test_a_config_that_is_not_json(branchwise: Branchwise, model: Path) -> None:
    (model / "config.json").write_text("{")
    refused(branchwise("solve", PROBLEM, "--model", str(model)), "config.json")


def test_an_architecture_that_is_not_there(branchwise: Branchwise, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config |= {"architectures": ["NoSuchModel"], "model_type": "no_such_model"}
    (model / "config.json").write_text(json.dumps(config))
    refused(branchwise("solve", PROBLEM, "--model", str(model)), "NoSuchModel")


def test_a_prompt_longer_than_the_context(branchwise: Branchwise) -> None:
    refused(branchwise("solve", PROBLEM, "--max-model-len", "8"), "8")


@pytest.mark.parametrize(
    ("option", "role", "part"),
    [("--prm", "policy", "no reward head"), ("--model", "prm", "give this one as --prm"),
     ("--draft", "prm", "cannot generate")],
)  # fmt: skip
def test_a_model_in_the_wrong_role_is_refused(
    branchwise: Branchwise, option: str, role: str, part: str
) -> None:
    path = getattr(find_source("reference"), role)
    refused(branchwise("solve", PROBLEM, option, str(path)), option, str(path), part)
