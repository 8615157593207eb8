"""The GPU check: what it needs, what it says without a GPU, its rows, and that it ends whatever happens."""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from branchwise.evals.bench.gpu.report import Report, make_report, render, save
from branchwise.evals.bench.gpu.rows import Goal, Outcome, Row, checked, held, rated, timed
from branchwise.evals.bench.gpu.timer import Deadline
from branchwise.kernels import bounds

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "evals" / "bench" / "gpu_check.py"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

BARE = """
import importlib, importlib.machinery, importlib.metadata, importlib.util, re, sys
from pathlib import Path

here = ["torch", "triton", "transformers", "safetensors", "networkx", "anyio", "numpy"]
here += ["msgspec", "structlog"]
absent = {"gguf", "prometheus_client", "rich", "typer", "typer_slim", "scipy"}
homes = importlib.metadata.packages_distributions()
modules = {}
for module, names in homes.items():
    for name in names:
        modules.setdefault(re.sub("[-_.]+", "-", name).lower(), set()).add(module)
allowed, seen, waiting = set(sys.stdlib_module_names), set(), here
while waiting:
    name = re.sub("[-_.]+", "-", waiting.pop()).lower()
    if name in seen:
        continue
    seen.add(name)
    allowed |= modules.get(name, set())
    try:
        needs = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        continue
    waiting += [re.match(r"[\\w.-]+", need)[0] for need in needs if "extra ==" not in need]
allowed = (allowed - absent) | {"branchwise"}


class Installed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is None and not name.startswith("_") and name.partition(".")[0] not in allowed:
            return None
        return importlib.machinery.PathFinder.find_spec(name, path, target)


kept = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter)
sys.meta_path[:] = [*kept, Installed]
version, points = importlib.metadata.version, importlib.metadata.entry_points


def installed_version(name):
    if name == "branchwise":
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)


def installed_points(**chosen):
    ours = chosen.get("group", "").startswith("branchwise")
    return importlib.metadata.EntryPoints(() if ours else points(**chosen))


importlib.metadata.version = installed_version
importlib.metadata.entry_points = installed_points
for name in sorted(absent):
    assert importlib.util.find_spec(name) is None, name

root, script, folder = map(Path, sys.argv[1:])
spec = importlib.util.spec_from_file_location("gpu_check", script)
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)
assert check.provide(folder, check.NEEDED) == []
import branchwise
assert Path(branchwise.__file__).resolve().parent == root, branchwise.__file__
"""


def run(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Python on a machine that has what the check needs and nothing else."""
    command = [sys.executable, "-c", BARE + code, str(ROOT), str(SCRIPT), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    for name in ("TRITON_INTERPRET", "PYTHONPATH"):
        environment.pop(name, None)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


# The script


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would run")
def test_without_a_gpu_it_skips_itself_in_one_line(tmp_path: Path):
    found = subprocess.run(
        [sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == ["gpu check: skipped, torch finds no GPU here"]


@needs_triton
def test_what_it_lacks_is_one_line_and_status_2(tmp_path: Path):
    code = """
import torch
torch.cuda.is_available = lambda: True
allowed.discard("structlog")
check.WHEELS = folder / "none"
sys.modules.pop("structlog", None)
sys.exit(check.main([]))
"""
    found = run(code, tmp_path)
    assert found.returncode == 2, found.stderr
    (line,) = found.stderr.splitlines()
    assert "not installed: structlog;" in line
    assert "make gpu-wheels" in line


@needs_triton
def test_every_module_of_it_imports_on_a_machine_with_little(tmp_path: Path):
    """And so does all that a search on it runs through, where nothing is registered."""
    code = """
import pkgutil
import branchwise.evals.bench.gpu as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"branchwise.evals.bench.gpu.{module.name}")
for module in pkgutil.iter_modules([str(root / "kernels" / "gpu")]):
    importlib.import_module(f"branchwise.kernels.gpu.{module.name}")
import dataclasses, msgspec, torch
from branchwise.evals.bench.gpu import search
from branchwise.evals.bench.gpu.rows import BAD
from branchwise.evals.bench.gpu.setting import FULL, Setting
setting = Setting(
    device=torch.device("cpu"), dtype=torch.float32, sizes=msgspec.structs.replace(FULL, full=False, page=16),
    timer=None, machine=None, tma=False, make_recorder=None, generator=torch.Generator(),
)
rows = list(search.rows(setting))
assert rows and not [row for row in rows if row.outcome in BAD], rows
print(*sorted(absent & set(sys.modules)), len(rows))
"""
    found = run(code, tmp_path, BRANCHWISE_KERNELS="torch")
    assert found.returncode == 0, found.stderr[-3000:]
    assert found.stdout.splitlines()[-1] == "2", "rows, and no module that is absent there"


def test_wheels_serve_where_a_package_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spec = importlib.util.spec_from_file_location("gpu_check_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "packed_thing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("packed_thing/__init__.py", "from .inner import ANSWER")
        wheel.writestr("packed_thing/inner.py", "ANSWER = 42")
    monkeypatch.setattr(script, "WHEELS", wheels)
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "folder"
    folder.mkdir()
    assert script.provide(folder, ("json", "packed_thing", "no_such_thing")) == ["no_such_thing"]
    assert sys.modules.pop("packed_thing").ANSWER == 42
    assert (folder / "branchwise").resolve() == ROOT


# Rows and reports


def test_a_goal_is_met_or_missed_and_a_share_of_the_bound_is_its_own_goal():
    met = timed("s", "n", 40e-6, 30e-6, goal=Goal(55))
    assert (met.outcome, met.value, met.bound, met.share) == (
        Outcome.MET,
        pytest.approx(40),
        pytest.approx(30),
        pytest.approx(0.75),
    )
    assert timed("s", "n", 60e-6, 30e-6, goal=Goal(55)).outcome is Outcome.MISSED
    share = Goal(0.6, at_least=True, of_bound=True)
    assert timed("s", "n", 40e-6, 30e-6, goal=share).outcome is Outcome.MET
    assert timed("s", "n", 60e-6, 30e-6, goal=share).outcome is Outcome.MISSED
    assert rated("s", "n", "x", 2.4, goal=Goal(2.5, at_least=True)).outcome is Outcome.MISSED
    assert rated("s", "n", "x", 2.5, goal=Goal(2.5, at_least=True)).outcome is Outcome.MET
    assert timed("s", "n", 1.0).outcome is Outcome.NOTED


@pytest.mark.parametrize("error", [2e-5, float("nan"), float("inf")])
def test_a_large_error_is_wrong_and_nan_is(error: float):
    assert checked("s", "n", error, 1e-5).outcome is Outcome.WRONG
    assert checked("s", "n", 1e-6, 1e-5).outcome is Outcome.RIGHT
    assert held("s", "n", False).outcome is Outcome.WRONG


def made(rows: list[Row]) -> Report:
    pytest.importorskip("triton")
    return make_report("a GPU", bounds.H200, 12.34, rows)


def test_a_missed_goal_fails_nothing_and_a_wrong_result_does():
    missed = timed("s", "n", 60e-6, goal=Goal(55))
    assert made([missed, held("s", "n", True)]).bad == []
    wrong = held("s", "n", False)
    unreached = Row(section="s", name="the rest", outcome=Outcome.NOT_RUN)
    assert made([missed, wrong, unreached]).bad == [wrong, unreached]
    assert "1 missed, 1 wrong, 1 not run" in made([missed, wrong, unreached]).summary


def test_a_report_reads_back_and_holds_machine_versions_and_rows(tmp_path: Path):
    rows = [timed("s", "n", 60e-6, 30e-6, shape="[3]", goal=Goal(55)), rated("s", "nan", "x", float("nan"))]
    report = made(rows)
    path = save(report, tmp_path / "new" / "folder")
    fields = json.loads(path.read_bytes())
    assert fields["device"] == "a GPU"
    assert fields["machine"]["bytes_per_s"] == bounds.H200.bytes_per_s
    assert {"python", "torch", "triton", "cuda"} <= set(fields["versions"])
    assert fields["rows"][0]["outcome"] == "missed"
    assert fields["rows"][0]["goal"] == "<= 55"
    found = msgspec.json.decode(path.read_bytes(), type=Report)
    assert found.rows[0] == rows[0]


def test_the_table_has_a_line_for_each_row_and_aligned_columns():
    rows = [timed("attention", "n", 60e-6, 30e-6, goal=Goal(55)), held("bits", "a longer name", True)]
    head, first, second = render(rows).splitlines()
    assert head.index("figure") == first.index("60 us")
    assert first.index("50%") == head.index("share")
    assert first.endswith("missed")
    assert second.split()[-1] == "right"
    assert head.index("outcome") == second.index("right")


# Sections


@pytest.fixture
def sections() -> Any:
    pytest.importorskip("triton")
    from branchwise.evals.bench.gpu import sections

    return sections


def checking(sections: Any, seconds: float, now: Any) -> Any:
    from branchwise.evals.bench.gpu.setting import FULL, Setting

    setting = Setting(
        device=torch.device("cpu"),
        dtype=torch.float32,
        sizes=FULL,
        timer=Still(),
        machine=bounds.H200,
        tma=False,
        make_recorder=lambda: pytest.fail("nothing is recorded here"),
        generator=torch.Generator(),
    )
    found = sections.Checking(setting, Deadline(seconds, now))
    found.measuring.rows = lambda setting: iter([held("machine", "stands", True)])
    return found


class Still:
    def seconds(self, work: Any) -> float:
        raise AssertionError("nothing is measured here")


def outcomes(rows: list[Row], section: str) -> list[str]:
    return [row.outcome.value for row in rows if row.section == section and row.name != "time"]


def test_a_section_that_raises_is_a_failed_row_and_the_others_run(sections: Any):
    def breaks(setting: Any) -> Iterator[Row]:
        yield held("breaks", "first", True)
        raise RuntimeError("no kernel image\nmore")

    def stands(setting: Any) -> Iterator[Row]:
        yield held("stands", "first", True)

    run = checking(sections, 100, lambda: 0.0)
    run.run([sections.Section("breaks", breaks, 10), sections.Section("stands", stands, 10)])
    assert outcomes(run.rows, "breaks") == ["right", "failed"]
    assert outcomes(run.rows, "stands") == ["right"]
    (failed,) = (row for row in run.rows if row.outcome is Outcome.FAILED)
    assert failed.note.startswith("RuntimeError at test_gpu_check.py:")
    assert failed.note.endswith("no kernel image")


@pytest.mark.slow
@pytest.mark.parametrize(("proves", "outcome"), [(True, "not run"), (False, "cut")])
def test_the_runs_time_ends_sections_and_what_must_hold_then_fails(sections: Any, proves: bool, outcome: str):
    clock = iter(range(0, 1000, 10))
    run = checking(sections, 45, lambda: next(clock))

    def endless(setting: Any) -> Iterator[Row]:
        while True:
            yield held("endless", "one more", True)

    def never(setting: Any) -> Iterator[Row]:
        pytest.fail("its time was over")
        yield

    run.run(
        [sections.Section("endless", endless, 1e9, proves), sections.Section("never", never, 1e9, proves)]
    )
    assert outcomes(run.rows, "never") == [outcome]


def test_sections_are_chosen_by_part_of_their_names(sections: Any):
    assert sections.chosen([]) == list(sections.SECTIONS)
    assert [one.name for one in sections.chosen(["right"])] == [
        "attention is right",
        "layers are right",
        "head is right",
    ]
    assert sections.chosen(["nothing"]) == []
    assert len({one.name for one in sections.SECTIONS}) == len(sections.SECTIONS)


# Times
