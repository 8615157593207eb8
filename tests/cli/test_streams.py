"""Streams that the caller closed, that are full, or that nobody reads: the status still tells."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BRANCHWISE = f"{sys.executable} -c 'from branchwise.reasoning.cli.main import main; main()'"
SOLVE = f'{BRANCHWISE} solve "Use 3 and 4 to make 7" --seed 0 --set n=1'


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a user's shell runs it: an unbuffered Python would hide what is left in a buffer at the end."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        check=False,
        env=plain,
    )


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (f"{BRANCHWISE} verifiers >&-", 0),
        (f"{BRANCHWISE} solve --seed x 2>&-", 2),
        (f"{BRANCHWISE} solve --seed x 2>/dev/full", 2),
        (f"{BRANCHWISE} verifiers >/dev/full", 3),
        (f"{BRANCHWISE} verifiers >/dev/full 2>&1", 3),
        (f"{BRANCHWISE} solve --input - <&-", 2),
        (f"{SOLVE} <&- >&- 2>&-", 0),
    ],
)
def test_the_status_does_not_depend_on_the_streams(command: str, status: int, tmp_path: Path) -> None:
    ran = shell(command, tmp_path)
    assert ran.returncode == status, ran
    assert "Traceback" not in ran.stderr


def test_a_graph_that_cannot_be_written_loses_no_solution(tmp_path: Path) -> None:
    (tmp_path / "full.json").symlink_to("/dev/full")
    ran = shell(f"{SOLVE} --json --graph full.json", tmp_path)
    assert ran.returncode == 3
    assert json.loads(ran.stdout)["answer"] is not None
    assert len(ran.stderr.splitlines()) == 1
    assert "full.json" in ran.stderr


def test_a_batch_whose_reader_left_ends_quietly(tmp_path: Path) -> None:
    (tmp_path / "problems").write_text("Use 3 and 4 to make 7\n" * 100)
    ran = shell(f"{{ {BRANCHWISE} solve --input problems --set n=1; echo $? >&2; }} | head -c 1", tmp_path)
    assert ran.stderr == "141\n"


def test_ctrl_c_while_the_command_line_loads_is_quiet() -> None:
    code = (
        "import sys, importlib.abc, signal\n"
        "from branchwise.reasoning.cli.main import main\n"
        "class Interrupts(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'typer':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "main(['--help'])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
