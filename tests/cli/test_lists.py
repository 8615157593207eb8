"""The commands that list what can be named, and the help."""

import json
import subprocess
import sys

import pytest
from cli.command_line import Branchwise


@pytest.mark.parametrize(
    ("command", "names"),
    [("strategies", {"greedy", "best_of_n"}), ("verifiers", {"replay", "prm"}), ("models", {"reference"})],
)
def test_a_list_names_what_there_is(branchwise: Branchwise, command: str, names: set[str]) -> None:
    plain = branchwise(command)
    assert (plain.status, plain.err) == (0, "")
    assert all(name in plain.out for name in names)
    listing = json.loads(branchwise(command, "--json").out)
    assert names <= {entry["name"] for entry in listing}


def test_each_strategy_is_told_in_a_whole_sentence_and_its_defaults_as_they_are_given(
    branchwise: Branchwise,
) -> None:
    listing = json.loads(branchwise("strategies", "--json").out)
    assert [entry["name"] for entry in listing if not entry["summary"].endswith(".")] == []
    lines = branchwise("strategies").out.splitlines()
    defaults = [line.strip().partition(": ")[0] for line in lines if line.startswith("  ")]
    assert "members=[greedy, best_of_n]" in defaults
    assert {"n=16", "select=weighted_vote", "stop_on_verified=true", "temperature=none"} <= set(defaults)


def test_the_help_shows_every_command_and_loads_no_torch() -> None:
    code = (
        "import sys; from branchwise.reasoning.cli.main import run; status = run(['--help']); "
        "print('heavy:', *{'torch', 'transformers'} & set(sys.modules)); sys.exit(status)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0
    for name in ("solve", "models", "strategies", "verifiers", "demo", "bench"):
        assert f" {name} " in ran.stdout
    assert "Not usable" not in ran.stdout
    assert ran.stdout.splitlines()[-1].strip() == "heavy:"


def test_no_command_is_a_request_for_help(branchwise: Branchwise) -> None:
    ran = branchwise()
    assert ran.status == 0
    assert "solve" in ran.out


def test_a_group_alone_shows_its_help(branchwise: Branchwise) -> None:
    ran = branchwise("bench")
    assert "best-of-n" in ran.out
    assert ran.err == ""


def test_the_version(branchwise: Branchwise) -> None:
    assert branchwise("--version").out.startswith("branchwise 0.")
