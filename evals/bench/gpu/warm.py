"""Compiles kernels in several processes before one of them measures: Triton keeps what was compiled in a
cache that they share."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from . import right_attention, right_head, right_layers, sweep, timed_attention, timed_head, timed_layers
from .rows import Row
from .setting import Setting

_MOST = 8


def warm_up(script: Path, seconds: float) -> str:
    """Run the share of each process, `seconds` at most; what came of it, in a line. Nothing depends on it but
    time."""
    count = max(1, min(_MOST, (os.cpu_count() or 1) // 2))
    began = time.monotonic()
    running = [
        subprocess.Popen(
            [sys.executable, str(script), "--share", f"{index}/{count}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for index in range(count)
    ]
    statuses = [_end(process, began + seconds) for process in running]
    ended = sum(status == 0 for status in statuses)
    return f"{ended} of {count} processes compiled their share in {time.monotonic() - began:.0f} s"


def run_share(setting: Setting, index: int, count: int) -> int:
    """What this process compiles: its part of what has many builds, and one of the sections with few."""
    mine = replace(setting, share=(index, count))
    status = 0
    for section in (right_attention, timed_attention, sweep):
        status |= _compile(section.rows(mine))
    whole = (right_head, right_layers, timed_head, timed_layers)
    for section in whole[index::count]:
        status |= _compile(section.rows(setting))
    return status


def _compile(rows: Iterator[Row]) -> int:
    """Go through `rows`; 1 where that raises, which the check itself will find and tell."""
    try:
        for _ in rows:
            pass
    except Exception:
        return 1
    return 0


def _end(process: subprocess.Popen[bytes], until: float) -> int:
    """The status of `process`, which ends at `until` at the latest."""
    try:
        return process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
