"""All rows of one run with the machine that they are of: as JSON, and as one table of text."""

import datetime
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import torch

from ....kernels.bounds import Machine
from .rows import BAD, Outcome, Row

FILE = "gpu-check.json"
_HEAD = ("section", "row", "shape", "figure", "bound", "share", "goal", "outcome", "note")
_WIDEST = 44


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`device` is the GPU's own name for itself; `machine` what was measured of it, None where that failed;
    `seconds` took the whole run."""

    date: str
    device: str
    system: str
    versions: dict[str, str]
    commit: str
    machine: Machine | None
    seconds: float
    rows: Sequence[Row]

    @property
    def bad(self) -> list[Row]:
        """Rows that fail the check."""
        return [row for row in self.rows if row.outcome in BAD]

    @property
    def summary(self) -> str:
        """One line: how many rows came out how."""
        counts = {one: sum(row.outcome == one for row in self.rows) for one in Outcome}
        told = ", ".join(f"{count} {one}" for one, count in counts.items() if count)
        return f"gpu check on {self.device}: {told}; {self.seconds:.0f} s"


def make_report(device: str, machine: Machine | None, seconds: float, rows: Sequence[Row]) -> Report:
    """The rows, dated now (UTC), with the versions of what computed."""
    import triton

    now = datetime.datetime.now(datetime.UTC)
    return Report(
        date=now.isoformat(timespec="seconds"),
        device=device,
        system=f"{platform.system()} {platform.machine()}",
        versions={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "triton": str(triton.__version__),
            "cuda": str(torch.version.cuda),
        },
        commit=_commit(),
        machine=machine,
        seconds=round(seconds, 1),
        rows=tuple(rows),
    )


def save(report: Report, folder: Path) -> Path:
    """Write the report to its file in `folder`, in place of an earlier one; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path


def render(rows: Iterable[Row]) -> str:
    """The table, columns aligned."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    value = "" if row.value is None else f"{_number(row.value)} {row.figure}"
    bound = "" if row.bound is None else _number(row.bound)
    share = "" if row.share is None else f"{row.share:.0%}"
    shape = row.shape if len(row.shape) <= _WIDEST else row.shape[: _WIDEST - 1] + "…"
    return (row.section, row.name, shape, value, bound, share, row.goal, row.outcome.value, row.note)


def _number(value: float) -> str:
    if value != 0 and not 1e-2 <= abs(value) < 1e6:
        return f"{value:.1e}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _commit() -> str:
    """Of the checkout; empty where git does not know."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
