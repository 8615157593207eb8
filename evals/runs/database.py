"""The SQLite file of a run: its tables, how it is opened, and its faults in one line."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...engine.errors import BranchwiseError, UsageError

FILE = "records.sqlite"
FORMAT = 1
PATIENCE_S = 10.0
"""Another program may hold the file for so long before it is refused."""

SCHEMA = """
create table meta (name text primary key, value text not null);
create table launches (
    launch integer primary key, started text not null, parallel integer not null, machine text not null);
create table samples (
    id text primary key, position integer not null, level text, problem text not null, gold text not null,
    meta text not null);
create table records (
    sample text not null references samples (id), strategy text not null, budget text not null,
    seed integer not null, correct integer, censored integer not null, reason text not null, answer text,
    tokens integer, flops integer, seconds real, record text not null, graph blob,
    primary key (sample, strategy, budget, seed)) without rowid;
"""
_TABLES = frozenset({"meta", "launches", "samples", "records"})
_CLOSED = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
_DAMAGED = "is no file of records, or a damaged one"


class Database:
    """An open file of records. Statements raise `UsageError` or `BranchwiseError` in one line."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def create(cls, path: Path, fill: Sequence[tuple[str, Iterator[tuple[Any, ...]]]]) -> "Database":
        """A new file with the tables, and what `fill` puts into them (statement, rows), in one
        transaction."""
        with explained(path):
            connection = _open_writing(path)
            try:
                connection.execute("begin immediate")
                for statement in filter(str.strip, SCHEMA.split(";")):
                    connection.execute(statement)
                for statement, rows in fill:
                    connection.executemany(statement, rows)
                connection.commit()
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    @classmethod
    def writing(cls, path: Path) -> "Database":
        """A file that is there, to add records."""
        with explained(path):
            return cls(path, _open_writing(path))

    @classmethod
    def reading(cls, path: Path) -> "Database":
        """A file that is there, also while a run writes to it, and where nothing may be written."""
        with explained(path):
            return cls(path, _open_reading(path))

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, read as they are asked for."""
        with explained(self.path):
            cursor = self._connection.execute(statement, values)
        while True:
            with explained(self.path):
                row = cursor.fetchone()
            if row is None:
                return
            yield row

    def first(self, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query."""
        with explained(self.path):
            return self._connection.execute(statement, values).fetchone()

    def write(self, *statements: tuple[str, Sequence[Any]]) -> None:
        """All statements in one transaction, or none. Raises `sqlite3.IntegrityError` for a second row of
        one key."""
        with explained(self.path), self._connection:
            for statement, values in statements:
                self._connection.execute(statement, values)

    def fold(self) -> None:
        """Put what was written last into the one file, where nobody else has it open. What cannot be folded
        now is read from beside it."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        self._connection.close()


def count_records(path: Path) -> int | None:
    """How many records the file holds; None where there is no file, or none that anything was written to (a
    process may have been killed before its first transaction).

    Raises `UsageError` for a file of another program, or a damaged one.
    """
    if not path.exists():
        return None
    with explained(path), contextlib.closing(_open_reading(path)) as connection:
        tables = {row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")}
        if not tables:
            return None
        if not tables >= _TABLES:
            raise UsageError(
                f"{path}: holds no records of a run, but another program's tables "
                f"({', '.join(sorted(tables)[:5])}); give another --out"
            )
        written = connection.execute("select value from meta where name = 'format'").fetchone()
        if written is None or written[0] != str(FORMAT):
            found = "no format" if written is None else f"format {written[0]}"
            raise UsageError(f"{path.parent}: records of {found}, this reads {FORMAT}; give another --out")
        return connection.execute("select count(*) from records").fetchone()[0]


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What SQLite, or what reads its rows, complains about: as an error that says what to do."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.Error as error:
        raise _explanation(path, error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {_DAMAGED} ({error}); give another folder") from error


def _explanation(path: Path, error: sqlite3.Error) -> BranchwiseError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        return UsageError(f"{path}: another program holds it locked; close that, and try again")
    if code == sqlite3.SQLITE_FULL:
        return BranchwiseError(
            f"{path}: the disk is full; what was recorded is safe: make room, and go on with --resume"
        )
    if code == sqlite3.SQLITE_IOERR:
        return BranchwiseError(f"{path}: the disk failed ({error}); go on with --resume once it works")
    if code in _CLOSED:
        return UsageError(f"{path}: cannot be opened or written ({error}); make it writable")
    return UsageError(f"{path}: {_DAMAGED} ({error}); give another folder")


def _open_writing(path: Path) -> sqlite3.Connection:
    # Written by one thread at a time, which may be another one each time.
    connection = sqlite3.connect(path, check_same_thread=False, timeout=PATIENCE_S)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
    except BaseException:
        connection.close()
        raise
    return connection


def _open_reading(path: Path) -> sqlite3.Connection:
    """A connection that writes no records. A folder without write permission has no room for SQLite's shared
    memory: there the file is read as one that nobody changes, where it is in one piece."""
    address = path.resolve().as_uri()
    connection = sqlite3.connect(f"{address}?mode=rw", uri=True, check_same_thread=False, timeout=PATIENCE_S)
    try:
        # Not mode=ro: that would leave SQLite's files of shared memory in the folder.
        connection.execute("pragma query_only = true")
        connection.execute("select 1 from sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        beside = path.with_name(f"{path.name}-wal")
        unfolded = beside.exists() and beside.stat().st_size > 0
        if unfolded or error.sqlite_errorcode & 0xFF not in _CLOSED:
            raise
        return sqlite3.connect(f"{address}?immutable=1", uri=True, check_same_thread=False)
    except BaseException:
        connection.close()
        raise
    return connection
