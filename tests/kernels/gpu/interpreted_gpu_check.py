"""The sections of the GPU check at tiny shapes in Triton's interpreter: that they run, and find every result
right, before a GPU is at hand. Times here are of nothing: the timer is a stand-in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from branchwise.evals.bench.gpu import (
    end_to_end,
    invariance,
    machine,
    replay,
    right_attention,
    right_head,
    right_layers,
    run,
    search,
    sweep,
    timed_attention,
    timed_head,
    timed_layers,
    warm,
)
from branchwise.evals.bench.gpu.report import FILE, Report
from branchwise.evals.bench.gpu.rows import BAD, Outcome, Row
from branchwise.evals.bench.gpu.sections import SECTIONS, Rows, Section, chosen
from branchwise.evals.bench.gpu.setting import Setting, Sizes
from branchwise.evals.bench.gpu.timer import Unmeasured
from branchwise.kernels.bounds import Machine, Shape
from support.recording import FakeRecorder

CPU = torch.device("cpu")
SHAPE = Shape(
    layers=2, heads=4, kv_heads=2, head_dim=16, hidden=32, intermediate=48, vocabulary=96, element_bytes=2
)
MODEL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TINY = Sizes(
    shape=SHAPE,
    small=SHAPE,
    model=MODEL,
    layers=1,
    small_model=MODEL,
    copy_bytes=1 << 12,
    l2_bytes=1 << 13,
    matmul_side=16,
    pages=(16, 32),
    page=16,
    tree_rows=4,
    context=20,
    decode=3,
    many=5,
    prefill=7,
    scored=9,
    blocks=3,
    drafts=2,
    branches=2,
    prompt=20,
    answer=5,
    new=3,
    steps=2,
    together=3,
    full=False,
)


LONG_S = 3600.0
"""No test may depend on how fast the interpreter is."""


class Once:
    """Implements `Timer`: runs the work, and says that it took a second."""

    def __init__(self) -> None:
        self.runs = 0

    def seconds(self, work: Callable[[], object]) -> float:
        work()
        self.runs += 1
        return 1.0


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setenv("BRANCHWISE_KERNELS", "triton")
    return Setting(
        device=CPU,
        dtype=torch.bfloat16,
        sizes=TINY,
        timer=Once(),
        machine=Machine("none", 1e9, 1e12, 1 << 10),
        tma=True,
        make_recorder=FakeRecorder,
        generator=torch.Generator().manual_seed(0),
    )


def unhurried(only: Sequence[str]) -> list[Section]:
    """The sections, with as much time as this machine needs."""
    return [replace(section, seconds=LONG_S) for section in chosen(only)]


def found_right(rows: Rows, setting: Setting) -> list[Row]:
    found = list(rows(setting))
    assert found
    assert [row for row in found if row.outcome in BAD] == []
    return found


def test_a_run_prints_its_table_and_saves_its_rows(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(run, "cuda_setting", lambda device: setting)
    monkeypatch.setattr(run, "chosen", unhurried)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "no GPU at all")
    assert run.run_check(["layers"], tmp_path, LONG_S, tmp_path / "unused.py") == 0
    report = msgspec.json.decode((tmp_path / FILE).read_bytes(), type=Report)
    assert {row.section for row in report.rows} == {"machine", "layers are right", "layers"}
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].startswith("gpu check on no GPU at all: ")
    assert len([line for line in printed.splitlines() if line.startswith("layers are right ")]) == len(
        [row for row in report.rows if row.section == "layers are right"]
    )
    monkeypatch.setattr(right_layers, "gate_rows", lambda both, out: out.zero_())
    assert run.run_check(["layers are right"], tmp_path, LONG_S, tmp_path / "unused.py") == 1
    assert run.run_check(["nothing of this name"], tmp_path, LONG_S, tmp_path / "unused.py") == 2


@pytest.mark.slow
def test_shares_of_the_compiling_processes_run(setting: Setting):
    unmeasured = replace(setting, timer=Unmeasured(CPU))
    assert [warm.run_share(unmeasured, index, 16) for index in (0, 3)] == [0, 0]


@pytest.mark.slow
def test_layers(setting: Setting):
    found_right(right_layers.rows, setting)


@pytest.mark.slow
def test_head(setting: Setting):
    found_right(right_head.rows, setting)


@pytest.mark.slow
def test_times_of_layers_and_machine(setting: Setting):
    measuring = machine.Measuring()
    rates = {row.name: row.value for row in found_right(measuring.rows, setting)}
    assert measuring.found is not None
    assert rates["copy"] == pytest.approx(2 * TINY.copy_bytes / 1e9)
    assert measuring.found.flops_per_s == 2 * TINY.matmul_side**3
    found = found_right(timed_layers.rows, setting)
    assert {row.value for row in found if row.figure == "us"} == {1e6}
    assert all(row.outcome is Outcome.NOTED for row in found), "goals are for full shapes alone"


@pytest.mark.slow
def test_attention(setting: Setting):
    found = found_right(right_attention.rows, setting)
    paths = {row.name.rpartition(", ")[2] for row in found}
    assert paths == {"pointers", "descriptors"}


@pytest.mark.slow
@pytest.mark.parametrize("section", [timed_attention, timed_head, sweep], ids=lambda module: module.SECTION)
def test_times(section, setting: Setting):
    found = found_right(section.rows, setting)
    assert all(row.value is not None and row.value > 0 for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("section", [replay, invariance], ids=lambda module: module.SECTION)
def test_runners(section, setting: Setting):
    found_right(section.rows, setting)


@pytest.mark.slow
def test_end_to_end(setting: Setting):
    names = {row.name: row for row in found_right(end_to_end.rows, setting)}
    shared, unshared = (names[f"KV at the peak, {name}"].value for name in ("shared", "unshared"))
    assert shared is not None
    assert unshared is not None
    assert shared < unshared


@pytest.mark.slow
def test_search(setting: Setting, monkeypatch: pytest.MonkeyPatch):
    """With the kernels of the CPU: the reference model takes minutes in the interpreter."""
    monkeypatch.delenv("BRANCHWISE_KERNELS")
    found_right(search.rows, setting)


def test_each_section_is_run_here():
    here = (end_to_end, invariance, replay, right_attention, right_head, right_layers, search, sweep)
    timed = (timed_attention, timed_head, timed_layers)
    assert {module.SECTION for module in (*here, *timed)} == {section.name for section in SECTIONS}
