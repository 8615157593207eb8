"""Rows of a data set: from a folder or file that the user names, or from the Hugging Face Hub."""

import csv
import gzip
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...engine.errors import UsageError

DATA_VARIABLE = "BRANCHWISE_DATA"

Row = dict[str, Any]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows of a data set are: `folder/file` below the data folder, and the Hub's name for it
    (None where the Hub has none with these fields)."""

    folder: str
    file: str
    hub: str | None = None
    hub_config: str | None = None
    hub_split: str = "test"


def read_rows(name: str, source: Source, data: Path | None) -> list[Row]:
    """The rows of suite `name`: from `data` (a file, the set's folder, or the folder of all sets), else from
    the folder in BRANCHWISE_DATA, else from the Hub.

    Raises `UsageError` where they are in none of these, or cannot be read.
    """
    variable = os.environ.get(DATA_VARIABLE)
    root = data if data is not None else Path(variable) if variable else None
    if root is None:
        return _from_hub(name, source)
    places = (root, root / source.file, root / source.folder / source.file)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        said = "--data" if data is not None else DATA_VARIABLE
        raise UsageError(
            f"suite {name!r}: {said} {str(root)!r} holds no {source.folder}/{source.file}; give its path"
        )
    return list(read_file(found))


def read_file(path: Path) -> Iterator[Row]:
    """The rows of a `.jsonl` or `.csv` file, which may be gzipped. Raises `UsageError` with the line where a
    row is none."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"data file {str(path)!r}: cannot be read ({error})") from error
    if path.name.removesuffix(".gz").endswith(".csv"):
        yield from csv.DictReader(io.StringIO(text))
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield _row(path, number, line)


def _row(path: Path, number: int, line: str) -> Row:
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise UsageError(f"data file {str(path)!r}, line {number}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise UsageError(f"data file {str(path)!r}, line {number}: not a JSON object")
    return row


def field(row: Row, names: Sequence[str], where: str) -> Any:
    """The first of the named fields that the row has. Raises `UsageError` where it has none."""
    for name in names:
        if name in row and row[name] is not None:
            return row[name]
    raise UsageError(f"{where}: no field {' or '.join(map(repr, names))}; it has {', '.join(sorted(row))}")


def _from_hub(name: str, source: Source) -> list[Row]:
    remedy = f"give its files with --data PATH or {DATA_VARIABLE}"
    if source.hub is None:
        raise UsageError(f"suite {name!r}: is on no Hub; {remedy}")
    try:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
    except ImportError as error:
        raise UsageError(
            f"suite {name!r}: no data given, and the Hub needs pip install 'branchwise[hub]'; {remedy}"
        ) from error
    try:
        rows = load_dataset(source.hub, source.hub_config, split=source.hub_split)
    except Exception as error:  # whatever the network, the cache or the package meets
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(
            f"suite {name!r}: {source.hub} cannot be had from the Hub ({reason[:120]}); {remedy}"
        ) from error
    return [dict(row) for row in rows]
