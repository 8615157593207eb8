"""Rows of a data set: from a folder or file that the user names, or from the Hugging Face Hub."""

import csv
import gzip
import io
import math
import os
import zlib
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
    """The rows of a `.jsonl` or `.csv` file of UTF-8, which may be gzipped. Raises `UsageError` with the line
    where a row is none."""
    text = _text(path)
    if path.name.removesuffix(".gz").endswith(".csv"):
        yield from _csv_rows(path, text)
        return
    # Not by splitlines: a JSON text may hold U+2028 and its like, which end no line of a JSONL file.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _row(path, number, line)


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if path.suffix == ".gz" else raw
        return data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise UsageError(
            f"data file {str(path)!r}: is no UTF-8 text (byte {error.start}); give JSON lines or CSV in UTF-8"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UsageError(f"data file {str(path)!r}: cannot be read ({reason})") from error


def _csv_rows(path: Path, text: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text))
    try:
        for row in reader:
            if None in row:
                raise UsageError(
                    f"data file {str(path)!r}, line {reader.line_num}: has more columns than its first line"
                )
            yield row
    except csv.Error as error:
        raise UsageError(f"data file {str(path)!r}, line {reader.line_num}: no CSV ({error})") from error


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
    empty = [name for name in names if name in row]
    if empty:
        raise UsageError(f"{where}: its field {empty[0]!r} is null; every row needs a value")
    raise UsageError(f"{where}: no field {' or '.join(map(repr, names))}; it has {', '.join(sorted(row))}")


def text_field(row: Row, names: Sequence[str], where: str) -> str:
    """The first of the named fields that the row has, as text. Raises `UsageError` where it has none, or its
    value is empty, a list or an object."""
    value = field(row, names, where)
    name = next(name for name in names if row.get(name) is not None)
    return plain_text(value, f"{where}: its field {name!r}")


def plain_text(value: object, where: str) -> str:
    """A text, number or truth value as text, 27.0 as 27. Raises `UsageError` for anything else, and where
    nothing is written."""
    if not isinstance(value, str | int | float):
        raise UsageError(f"{where} is {_kind(value)}; give a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where} is {value}; give a finite number")
    whole = isinstance(value, float) and value.is_integer()
    text = str(int(value) if whole else value)
    if not text.strip():
        raise UsageError(f"{where} is empty; give a text or a number")
    return text


def _kind(value: object) -> str:
    return {list: "a list", dict: "an object", type(None): "null"}.get(type(value), type(value).__name__)


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
