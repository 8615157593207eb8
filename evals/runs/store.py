"""The records of a run in one SQLite file: one transaction per finished sample.

WAL with `synchronous=NORMAL`: a process that is killed loses at most the samples in flight, and the file is
whole whenever it is opened. Search graphs are node-link JSON, compressed by zlib.
"""

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from filelock import FileLock, Timeout

from ...engine.errors import BranchwiseError, UsageError
from ..suites.base import Sample
from .plan import Cell, Key, Plan
from .recipe import Recipe, differences
from .record import Record

FILE = "records.sqlite"
LOCK = "records.lock"
FORMAT = 1

_SCHEMA = """
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


class Store:
    """An open run's folder. Made by `create`, `resume` or `read`; a writer holds the folder's lock."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: FileLock | None) -> None:
        self.folder = folder
        self._connection = connection
        self._lock = lock

    @classmethod
    def open(cls, folder: Path, plan: Plan, *, resume: bool) -> Self:
        """Begin the run of `plan` in `folder`, or with `resume` go on with the one that is there.

        Raises `UsageError` where another run writes there, where one stands there that is not to be resumed,
        or where it has another recipe or other samples.
        """
        lock = _locked(folder)
        try:
            if _count(folder / FILE):
                return cls._resumed(folder, plan, lock, resume=resume)
            # What ended before its first record left nothing to go on with.
            for leftover in folder.glob(f"{FILE}*"):
                leftover.unlink()
            connection = _connect(folder / FILE)
            _begin(connection, plan)
            return cls(folder, connection, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _resumed(cls, folder: Path, plan: Plan, lock: FileLock, *, resume: bool) -> Self:
        store = cls(folder, _connect(folder / FILE), lock)
        try:
            store._check(plan, resume=resume)
        except BaseException:
            store._connection.close()
            raise
        return store

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Open a run for reading only, also while it is running.

        Raises `UsageError` where the folder holds no run.
        """
        path = folder / FILE
        if _count(path) is None:
            raise UsageError(f"{folder}: holds no run; give the --out folder of one")
        return cls(folder, _connect(path), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, all in one piece if nobody else has it open, and let go of the folder."""
        if self._lock is not None:
            self._connection.execute("pragma wal_checkpoint(truncate)")
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def recipe(self) -> Recipe:
        return msgspec.json.decode(self.meta("recipe") or "", type=Recipe)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """What is compared."""
        return msgspec.json.decode(self.meta("cells") or "", type=tuple[Cell, ...])

    @property
    def difficulty(self) -> Cell | None:
        """What sorts the problems by difficulty, if anything does."""
        return msgspec.json.decode(self.meta("difficulty") or "null", type=Cell | None)

    def meta(self, name: str) -> str | None:
        row = self._connection.execute("select value from meta where name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def note(self, name: str, value: str) -> None:
        """Keep `value` under `name`; a later launch that brings another one is refused with `UsageError`."""
        known = self.meta(name)
        if known is None:
            with self._connection:
                self._connection.execute("insert into meta values (?, ?)", (name, value))
        elif known != value:
            raise UsageError(
                f"--resume: {name} was {known} and is now {value}; "
                "use what the run began with, or another --out"
            )

    def launched(self, started: str, parallel: int, machine: dict[str, Any]) -> None:
        """Keep under which conditions the next records are made: seconds mean nothing without."""
        with self._connection:
            self._connection.execute(
                "insert into launches (started, parallel, machine) values (?, ?, ?)",
                (started, parallel, json.dumps(machine)),
            )

    def launches(self) -> list[dict[str, Any]]:
        rows = self._connection.execute("select started, parallel, machine from launches order by launch")
        return [{"started": row[0], "parallel": row[1], **json.loads(row[2])} for row in rows]

    def add(self, record: Record, graph: bytes | None) -> None:
        """Keep a finished sample and its graph (node-link JSON), in one transaction. Raises
        `BranchwiseError` where its record is there already."""
        row = (
            record.sample,
            record.strategy,
            record.budget,
            record.seed,
            record.correct,
            record.censored,
            record.reason,
            record.answer,
            record.usage.tokens,
            None if record.usage.flops is None else min(record.usage.flops, 2**63 - 1),
            record.usage.engine.get("seconds"),
            msgspec.json.encode(record).decode(),
            None if graph is None else zlib.compress(graph),
        )
        try:
            with self._connection:
                self._connection.execute(f"insert into records values ({','.join('?' * len(row))})", row)
        except sqlite3.IntegrityError as error:
            raise BranchwiseError(f"a second record of {record.key}") from error
        except sqlite3.Error as error:
            raise BranchwiseError(f"{self.folder / FILE}: cannot be written ({error})") from error

    def done(self) -> set[Key]:
        """The keys of all records."""
        rows = self._connection.execute("select sample, strategy, budget, seed from records")
        return {Key(row[0], Cell(strategy=row[1], budget=row[2]), row[3]) for row in rows}

    def records(self) -> Iterator[Record]:
        """All records, by sample as the suite orders them, then strategy, budget and seed."""
        rows = self._connection.execute(
            "select record from records join samples on samples.id = records.sample "
            "order by position, strategy, budget, seed"
        )
        decoder = msgspec.json.Decoder(Record)
        return (decoder.decode(row[0]) for row in rows)

    def samples(self) -> list[Sample]:
        """The suite's samples, gold answers included."""
        rows = self._connection.execute(
            "select id, problem, gold, level, meta from samples order by position"
        ).fetchall()
        return [
            msgspec.convert(
                {
                    "id": row[0],
                    "problem": row[1],
                    "gold": json.loads(row[2]),
                    "level": row[3],
                    "meta": json.loads(row[4]),
                },
                Sample,
            )
            for row in rows
        ]

    def graph(self, key: Key) -> bytes | None:
        """The search graph of one record as node-link JSON; None where there is none."""
        row = self._connection.execute(
            "select graph from records where sample = ? and strategy = ? and budget = ? and seed = ?",
            (key.sample, key.cell.strategy, key.cell.budget, key.seed),
        ).fetchone()
        return None if row is None or row[0] is None else zlib.decompress(row[0])

    def _check(self, plan: Plan, *, resume: bool) -> None:
        if self.meta("format") != str(FORMAT):
            raise UsageError(f"{self.folder}: records of format {self.meta('format')}, this reads {FORMAT}")
        changed = list(differences(self.recipe, plan.recipe))
        if not resume:
            done = len(self.done())
            raise UsageError(
                f"{self.folder}: holds a run with {done} samples done; "
                "go on with --resume, or give another --out"
            )
        if changed:
            raise UsageError(
                f"--resume: {self.folder} holds another recipe: {'; '.join(changed)}; "
                "give the same recipe, or another --out"
            )
        if self.meta("digest") != plan.digest:
            raise UsageError(
                f"--resume: the samples of suite {plan.recipe.suite} are not those that {self.folder} began "
                "with; use the same data, or another --out"
            )


def _locked(folder: Path) -> FileLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, blocking=False)
        lock.acquire()
    except Timeout as error:
        raise UsageError(
            f"{folder}: another run is writing there; wait for it, or give another --out"
        ) from error
    except OSError as error:
        raise UsageError(
            f"--out {folder}: cannot write there ({error.strerror}); give another folder"
        ) from error
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    # Written by one thread at a time, which may be another one each time.
    connection = sqlite3.connect(path, check_same_thread=False, timeout=30)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    return connection


def _count(path: Path) -> int | None:
    """How many records the file holds; None where it holds no run (a process may have been killed before its
    first transaction)."""
    if not path.is_file():
        return None
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
            if not connection.execute("select 1 from sqlite_master where name = 'records'").fetchone():
                return None
            return connection.execute("select count(*) from records").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{path}: is no file of records ({error}); give another --out") from error


def _begin(connection: sqlite3.Connection, plan: Plan) -> None:
    """The tables, the recipe and the samples, in one transaction."""
    meta = {
        "format": str(FORMAT),
        "recipe": msgspec.json.encode(plan.recipe).decode(),
        "cells": msgspec.json.encode(plan.cells).decode(),
        "difficulty": msgspec.json.encode(plan.difficulty).decode(),
        "digest": plan.digest,
    }
    connection.execute("begin immediate")
    for statement in filter(str.strip, _SCHEMA.split(";")):
        connection.execute(statement)
    connection.executemany("insert into meta values (?, ?)", meta.items())
    connection.executemany("insert into samples values (?, ?, ?, ?, ?, ?)", _sample_rows(plan.samples))
    connection.commit()


def _sample_rows(samples: Sequence[Sample]) -> Iterator[tuple[Any, ...]]:
    for position, sample in enumerate(samples):
        gold = msgspec.json.encode(sample.gold).decode()
        yield sample.id, position, sample.level, sample.problem, gold, json.dumps(sample.meta)
