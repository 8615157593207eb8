"""docs/production.md says what the code computes."""

import re
import shlex
from pathlib import Path

import pytest
from branchwise.evals.plan import sizing
from branchwise.evals.plan.gpus import HOST_ROW_S, HOST_STEP_S, find_gpu, gpus
from branchwise.evals.plan.machine import Machine, read_machine
from branchwise.kernels.bounds import H200, LLAMA_8B, best_of
from branchwise.reasoning.cli.main import run

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "production.md").read_text()
SESSION = re.compile(r"^```console\n\$ branchwise (.+)\n((?:.*\n)+?)```", re.MULTILINE)
JSON = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_table() -> None:
    assert sizing.sizing_table() in PAGE


def test_the_formulas_of_the_page_are_those_of_the_bounds() -> None:
    assert f"{sizing.position_bytes():,} bytes" in PAGE
    samples, prompt, answer = sizing.SAMPLES, sizing.PROMPT, sizing.ANSWER
    tree = best_of(samples, prompt, answer, items=1)
    assert sizing.search_positions() == tree.unique == prompt + samples * answer
    assert tree.unshared().unique == samples * (prompt + answer)
    rows = re.search(r"some (\d+) rows on an H200", PAGE)
    assert rows is not None
    parameters = LLAMA_8B.weight_bytes / 2
    crossing = LLAMA_8B.weight_bytes / H200.bytes_per_s / (2 * parameters / H200.flops_per_s)
    assert int(rows[1]) == pytest.approx(crossing, rel=0.05)


def test_the_engines_own_time_on_the_page_is_the_tables() -> None:
    assert f"about {HOST_STEP_S * 1e3:.1f} ms per step and {HOST_ROW_S * 1e6:.0f} µs per token" in PAGE


@pytest.mark.parametrize("machine", list(gpus()), ids=lambda machine: machine.name)
def test_a_row_of_the_table_keeps_its_bounds(machine: Machine) -> None:
    assert sizing.step_seconds(machine) > LLAMA_8B.weight_bytes / machine.bytes_per_s
    assert sizing.prompt_seconds(machine) < sizing.PROMPT * sizing.step_seconds(machine) / sizing.SAMPLES
    assert sizing.room_positions(machine) > sizing.search_positions()


def test_the_session_on_the_page_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    ((command, printed),) = SESSION.findall(PAGE)
    assert run(shlex.split(command)) == 0
    assert capsys.readouterr().out == printed


def test_the_machine_on_the_page_can_be_read(tmp_path: Path) -> None:
    (text,) = JSON.findall(PAGE)
    (tmp_path / "box.json").write_text(text)
    found = read_machine(str(tmp_path / "box.json"))
    assert found.draw_s == pytest.approx(find_gpu("H200").draw_s, rel=0.05)
