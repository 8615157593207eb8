"""The check that compiles kernels for GPUs that are not there, on kernels that are wrong in known ways."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from branchwise.kernels import compile_check
from branchwise.kernels.command import app
from branchwise.kernels.compile_check import Checked, CheckImpossible, Report, find_faults, run_check
from branchwise.kernels.gpu.build import Build, Ceiling
from branchwise.kernels.machine_code import MachineCode
from typer.testing import CliRunner

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")

FAULTY = "support.faulty_kernels"
SOUND = "support.sound_kernels"


def a_build(**changes: object) -> Build:
    fields = {
        "name": "k",
        "kernel": print,
        "signature": {},
        "constants": {},
        "ceilings": {
            80: Ceiling(registers=100, shared_bytes=1000),
            90: Ceiling(registers=90, shared_bytes=1000),
        },
    }
    return Build(**{**fields, **changes})  # pyright: ignore[reportArgumentType]


def a_code(**changes: int) -> MachineCode:
    fields = {
        "registers": 90,
        "stack_bytes": 0,
        "local_bytes": 0,
        "shared_bytes": 1000,
        "warps": 4,
        "instructions": 100,
    }
    return MachineCode(**{**fields, **changes})


@pytest.mark.parametrize(
    ("build", "code", "architecture", "faults"),
    [
        ({}, {}, 90, []),
        ({}, {"registers": 91}, 90, ["91 registers, over its ceiling of 90"]),
        ({}, {"registers": 91}, 80, []),
        ({}, {"registers": 255}, 100, []),
        ({}, {"shared_bytes": 1001}, 80, ["1001 bytes of shared memory, over its ceiling of 1000"]),
        ({}, {"stack_bytes": 8, "local_loads": 1}, 100, ["it spills: 8 bytes of stack, 0 local, 1 loads"]),
        ({"wants_async": True}, {"async_loads": 3}, 80, ["no load is asynchronous"]),
        ({"wants_async": True}, {"async_loads": 7, "wide_async_loads": 3}, 90, []),
        (
            {"wants_async": True},
            {"async_loads": 8, "wide_async_loads": 3},
            90,
            ["5 asynchronous loads are narr"],
        ),
        (
            {"wants_async": True, "narrow_async": 0},
            {"async_loads": 1, "bulk_loads": 2},
            90,
            ["1 asynchronous loads are narr"],
        ),
        ({"wants_async": True}, {"bulk_loads": 1}, 90, []),
        ({"wants_hgmma": True}, {"warp_products": 4}, 90, ["no warp-group products"]),
        ({"wants_hgmma": True}, {"warp_products": 4}, 80, []),
        ({"wants_hgmma": True}, {"warp_group_products": 4}, 90, []),
    ],
)
def test_what_is_a_fault(
    build: dict[str, object], code: dict[str, int], architecture: int, faults: list[str]
) -> None:
    found = find_faults(a_build(**build), architecture, a_code(**code))
    assert len(found) == len(faults)
    for fault, expected in zip(found, faults, strict=True):
        assert fault.startswith(f"k sm_{architecture}: ")
        assert expected in fault


@pytest.mark.slow
@needs_triton
def test_each_faulty_kernel_is_refused_for_its_own_reason() -> None:
    report = run_check(package=FAULTY)
    # A name chooses builds; what is wrong with modules is said in any case.
    assert run_check("no such kernel", package=FAULTY).all_faults() == report.faults
    expected = [
        "support.faulty_kernels.broken: it does not import: RuntimeError: this module is broken",
        "support.faulty_kernels.unbuilt.forgotten: no build compiles this kernel",
        "nowhere: it must have ceilings",
        "twin: 2 builds have this name",
        "strange sm_90: it does not compile: ValueError: arguments ['x', 'y']",
        "spills sm_80: it spills",
        "spills sm_90: it spills",
        "over sm_80: ",
        "over sm_90: ",
        "slow product sm_90: it has no warp-group products",
    ]
    faults = report.all_faults()
    for start in expected:
        assert any(fault.startswith(start) for fault in faults), start
    assert not any(fault.startswith("sound") for fault in faults)
    assert all("\n" not in fault for fault in faults)
    over = [fault for fault in faults if fault.startswith("over")]
    assert all("registers, over its ceiling of 16" in fault for fault in over)
    assert " faults; " in report.summary()  # and remarks on sm_100


@pytest.mark.slow
@needs_triton
def test_sound_kernels_pass_also_under_the_interpreters_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/nonexistent/of/another")
    report = run_check(package=SOUND)
    assert report.all_faults() == []
    assert report.summary() == "1 build for sm_80, sm_90, sm_100: no spills"
    assert os.environ["TRITON_INTERPRET"] == "1"


@pytest.mark.slow
@needs_triton
def test_the_architecture_may_be_chosen_and_one_without_ceilings_too() -> None:
    for architecture in (90, 100):
        report = run_check("doub", [architecture], package=SOUND)
        assert [(each.name, each.architecture) for each in report.checked] == [("double", architecture)]
        assert report.all_faults() == []


@pytest.mark.slow
@needs_triton
def test_a_compiler_that_dies_is_one_fault() -> None:
    report = run_check(package="support.deadly_kernels")
    lost = "ending sm_90: compiling it, or the build beside it, ended the process"
    assert report.all_faults() == [lost]


def run_command(*arguments: str) -> tuple[int, list[str], list[str]]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout.splitlines(), done.stderr.splitlines()


@pytest.mark.slow
@needs_triton
def test_the_command_prints_a_table_and_its_summary_last() -> None:
    status, lines, errors = run_command("check", "--only", "silu_mul", "--arch", "90")
    assert (status, errors) == (0, [])
    assert lines[0].split()[:3] == ["build", "gpu", "regs"]
    assert lines[1].split()[:2] == ["silu_mul", "sm_90"]
    assert lines[-1] == "1 build for sm_90: no spills"


@pytest.mark.slow
@needs_triton
def test_a_name_that_no_build_has_is_one_line() -> None:
    status, lines, errors = run_command("check", "--only", "no such kernel")
    assert (status, lines) == (2, [])
    assert errors == ["branchwise: no build's name contains 'no such kernel'"]


@pytest.mark.slow
@needs_triton
def test_an_architecture_that_no_build_names_is_said() -> None:
    with pytest.raises(CheckImpossible, match="no such build names sm_80"):
        run_check(architectures=[80], package="support.deadly_kernels")


def test_a_fault_is_status_1_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report([], ["k sm_90: it spills"])
    monkeypatch.setattr(compile_check, "run_check", lambda *_, **__: report)
    assert run_command("check")[0] == 1
    assert run_command("check")[2] == ["branchwise: k sm_90: it spills"]
    assert run_command("check")[1][-1] == "0 builds for no architecture: 1 fault"


def test_an_unknown_architecture_is_status_2() -> None:
    status, _, errors = run_command("check", "--arch", "75")
    assert status == 2
    assert errors == ["branchwise: --arch 75: not one of 80, 90, 100"]


def without_triton(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def without_tools(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    spec = importlib.util.spec_from_file_location("triton", folder / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


@pytest.mark.parametrize(
    ("remove", "reason"),
    [(without_triton, "triton is not installed"), (without_tools, "lacks cuobjdump and nvdis")],
)
def test_what_is_missing_is_one_line_and_status_2(
    remove: Callable[[pytest.MonkeyPatch, Path], None],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    remove(monkeypatch, tmp_path)
    with pytest.raises(CheckImpossible, match=reason):
        run_check()
    status, _, errors = run_command("check")
    assert status == 2
    assert len(errors) == 1
    assert reason in errors[0]


def test_the_command_is_light() -> None:
    """Its module is imported for the help of all commands."""
    code = "import sys, branchwise.kernels.command; print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_is_wrong_where_nobody_expects_a_build_is_told_and_not_counted() -> None:
    code = a_code(stack_bytes=24)
    checked = [Checked("k", 90, a_code(), []), Checked("k", 100, code, [])]
    report = Report(checked, [], ["k sm_100: it spills: 24 bytes of stack"])
    assert report.all_faults() == []
    assert report.summary() == "1 build for sm_90: no spills; 1 remark"
