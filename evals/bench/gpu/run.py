"""The GPU check on the machine at hand."""

import faulthandler
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog
import torch

from ....engine.exec.recorded import CudaRecorder
from ....kernels.bounds import H200
from .report import Report, make_report, render, save
from .rows import BAD, Outcome, Row
from .sections import Checking, chosen
from .setting import FULL, Setting
from .timer import CudaTimer, Deadline, Unmeasured
from .warm import run_share, warm_up

RESULTS = Path(__file__).parents[1] / "results" / "gpu"
_WARM_UP_S = 75.0
_HUNG_AFTER_S = 10.0
"""A kernel that never ends cannot be left: the process ends this long after its time, with the rows that were
saved by then."""


def run_check(only: Sequence[str], out: Path | None, seconds: float, script: Path) -> int:
    """Run the sections that `only` names, save the rows in `out` after each, and print the table. Kernels of
    a whole run are compiled by processes of `script` first. 1 where a result is wrong, a section raised, or
    one that must hold was not reached, else 0."""
    sections = chosen(only)
    if not sections:
        print(f"gpu check: no section is named {', '.join(only)}", file=sys.stderr)
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    faulthandler.dump_traceback_later(seconds + _HUNG_AFTER_S, exit=True, file=sys.__stderr__ or sys.stderr)
    began, folder = time.monotonic(), out or RESULTS
    if not only:
        print(f"compiling: {warm_up(script, _WARM_UP_S)}", flush=True)
    device = torch.device("cuda")
    name = torch.cuda.get_device_name(device)

    def report(checking: Checking) -> Report:
        return make_report(name, checking.measuring.found, time.monotonic() - began, checking.rows)

    checking = Checking(
        cuda_setting(device),
        Deadline(seconds - (time.monotonic() - began)),
        on_row=_tell,
        on_section=lambda checking: _saved(report(checking), folder),
    )
    checking.run(sections)
    faulthandler.cancel_dump_traceback_later()
    final = report(checking)
    path = save(final, folder)
    print(f"\n{render(final.rows)}\n\nwritten to {path}\n{final.summary}")
    return 1 if final.bad else 0


def run_part(share: str) -> int:
    """Compile the part "i/n" of the kernels, for `warm_up`."""
    index, count = map(int, share.split("/"))
    device = torch.device("cuda")
    return run_share(replace(cuda_setting(device), timer=Unmeasured(device)), index, count)


def cuda_setting(device: torch.device) -> Setting:
    """Everything at full size; bounds are an H200's until the machine is measured."""
    return Setting(
        device=device,
        dtype=torch.bfloat16,
        sizes=FULL,
        timer=CudaTimer(device),
        machine=H200,
        tma=torch.cuda.get_device_capability(device) >= (9, 0),
        make_recorder=lambda: CudaRecorder(device),
        generator=torch.Generator(device).manual_seed(0),
    )


def _tell(row: Row) -> None:
    """What a reader of a long run should see at once."""
    if row.outcome in BAD or row.outcome is Outcome.CUT or row.name == "time":
        value = "" if row.value is None else f" {row.value:.3g} {row.figure}"
        print(f"{row.section}: {row.name} {row.outcome}{value} {row.note}", flush=True)


def _saved(report: Report, folder: Path) -> None:
    save(report, folder)
