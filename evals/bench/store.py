"""Rows of results in files: one JSON object a line, one file per benchmark, only ever appended to."""

from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from .machine import this_machine
from .result import Result, Row, make_row

RESULTS = Path(__file__).parent / "results"


def save(result: Result, folder: Path) -> Path:
    """Append the result, with the machine and the date, to its benchmark's file in `folder`; returns the
    file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.work.bench}.jsonl"
    with path.open("ab") as file:
        file.write(msgspec.json.encode(make_row(result, this_machine())) + b"\n")
    return path


def read_rows(folder: Path) -> list[Row]:
    """All rows in `folder`, the oldest of each benchmark first; `UsageError` where there are none, and for a
    line that is no row."""
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(_read(path).splitlines(), start=1):
            try:
                rows.append(msgspec.json.decode(line, type=Row))
            except msgspec.DecodeError as error:
                raise UsageError(f"{path} line {number} is no row of a benchmark ({error})") from None
    if not rows:
        raise UsageError(f"{folder} has no rows of benchmarks; give a folder that --save filled")
    return rows


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
