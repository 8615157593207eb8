"""The records of a run in one SQLite file: one transaction per finished sample.

WAL with `synchronous=NORMAL`: a process that is killed loses at most the samples in flight, and the file is
whole whenever it is opened. Search graphs are node-link JSON, compressed by zlib.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from filelock import FileLock, Timeout

from ...engine.errors import BranchwiseError, UsageError
from ...reasoning.solution import Reason
from ...verifiers.nearest import shown
from ..suites.base import Gold, Sample
from .database import FILE, FORMAT, Database, count_records, explained
from .plan import Cell, Key, Plan
from .recipe import Recipe, differences
from .record import Record

LOCK = "records.lock"
_KEY = "sample = ? and strategy = ? and budget = ? and seed = ?"


class Store:
    """An open run's folder. Made by `open` or `read`; a writer holds the folder's lock.

    What is wrong with the file is an error in one line: `UsageError` where another file or folder would do.
    """

    def __init__(self, folder: Path, database: Database, lock: FileLock | None) -> None:
        self.folder = folder
        self._database = database
        self._lock = lock

    @classmethod
    def open(cls, folder: Path, plan: Plan, *, resume: bool) -> Self:
        """Begin the run of `plan` in `folder`, or with `resume` go on with the one that is there.

        Raises `UsageError` where another run writes there, where one stands there that is not to be resumed,
        or where it has another recipe or other samples.
        """
        lock = _locked(folder)
        try:
            if count_records(folder / FILE):
                return cls._resumed(folder, plan, lock, resume=resume)
            # What ended before its first record left nothing to go on with.
            for leftover in folder.glob(f"{FILE}*"):
                leftover.unlink()
            return cls(folder, Database.create(folder / FILE, _beginning(plan)), lock)
        except OSError as error:
            lock.release()
            raise UsageError(
                f"--out {folder}: cannot write there ({error.strerror}); give another folder"
            ) from error
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _resumed(cls, folder: Path, plan: Plan, lock: FileLock, *, resume: bool) -> Self:
        store = cls(folder, Database.writing(folder / FILE), lock)
        try:
            store._check(plan, resume=resume)
        except BaseException:
            store._database.close()
            raise
        return store

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Open a run for reading only, also while it is running.

        Raises `UsageError` where the folder holds no run.
        """
        path = folder / FILE
        if count_records(path) is None:
            raise UsageError(f"{folder}: holds no run; give the --out folder of one")
        return cls(folder, Database.reading(path), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, all in one piece if nobody else has it open, and let go of the folder."""
        if self._lock is not None:
            self._database.fold()
        self._database.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def recipe(self) -> Recipe:
        return self._decoded("recipe", Recipe)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """What is compared."""
        return self._decoded("cells", tuple[Cell, ...])

    @property
    def difficulty(self) -> Cell | None:
        """What sorts the problems by difficulty, if anything does."""
        return self._decoded("difficulty", Cell | None)

    def _decoded(self, name: str, kind: Any) -> Any:
        with explained(self._database.path):
            return msgspec.json.decode(self.meta(name) or "", type=kind)

    def meta(self, name: str) -> str | None:
        row = self._database.first("select value from meta where name = ?", (name,))
        return None if row is None else row[0]

    def note(self, name: str, value: str) -> None:
        """Keep `value` under `name`; a later launch that brings another one is refused with `UsageError`."""
        known = self.meta(name)
        if known is None:
            self._database.write(("insert into meta values (?, ?)", (name, value)))
        elif known != value:
            raise UsageError(
                f"--resume: {name} was {known} and is now {value}; "
                "use what the run began with, or another --out"
            )

    def launched(self, started: str, parallel: int, machine: dict[str, Any]) -> None:
        """Keep under which conditions the next records are made: seconds mean nothing without."""
        statement = "insert into launches (started, parallel, machine) values (?, ?, ?)"
        self._database.write((statement, (started, parallel, json.dumps(machine))))

    def launches(self) -> list[dict[str, Any]]:
        rows = self._database.rows("select started, parallel, machine from launches order by launch")
        return [{"started": row[0], "parallel": row[1], **json.loads(row[2])} for row in rows]

    def add(self, record: Record, graph: bytes | None) -> None:
        """Keep a finished sample and its graph (node-link JSON), in one transaction, in place of an earlier
        attempt that failed. Raises `BranchwiseError` where its record is there already."""
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
        failed = (f"delete from records where {_KEY} and reason = ?", (*_key(record.key), Reason.FAILED))
        made = (f"insert into records values ({','.join('?' * len(row))})", row)
        try:
            self._database.write(failed, made)
        except sqlite3.IntegrityError as error:
            raise BranchwiseError(f"a second record of {record.key}") from error

    def done(self) -> set[Key]:
        """The keys of all records with a result: those that failed are still to do."""
        rows = self._database.rows(
            "select sample, strategy, budget, seed from records where reason <> ?", (Reason.FAILED,)
        )
        return {Key(row[0], Cell(strategy=row[1], budget=row[2]), row[3]) for row in rows}

    def records(self) -> Iterator[Record]:
        """All records, by sample as the suite orders them, then strategy, budget and seed."""
        rows = self._database.rows(
            "select record from records join samples on samples.id = records.sample "
            "order by position, strategy, budget, seed"
        )
        decoder = msgspec.json.Decoder(Record)
        for row in rows:
            with explained(self._database.path):
                record = decoder.decode(row[0])
            yield record

    def samples(self) -> list[Sample]:
        """The suite's samples, gold answers included."""
        rows = self._database.rows("select id, problem, gold, level, meta from samples order by position")
        with explained(self._database.path):
            return [
                Sample(
                    id=row[0],
                    problem=row[1],
                    gold=msgspec.json.decode(row[2], type=Gold),
                    level=row[3],
                    meta=msgspec.json.decode(row[4], type=dict[str, str]),
                )
                for row in rows
            ]

    def graph(self, key: Key) -> bytes | None:
        """The search graph of one record as node-link JSON; None where there is none."""
        row = self._database.first(f"select graph from records where {_KEY}", _key(key))
        try:
            return None if row is None or row[0] is None else zlib.decompress(row[0])
        except zlib.error as error:
            raise UsageError(f"{self._database.path}: the graph of {key} is damaged ({error})") from error

    def _check(self, plan: Plan, *, resume: bool) -> None:
        changed = list(differences(self.recipe, plan.recipe))
        if not resume:
            raise UsageError(
                f"{self.folder}: holds a run with {len(self.done())} samples done; "
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
                f"with: {_change(self.samples(), plan.samples)}; use the same data, or another --out"
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


def _key(key: Key) -> tuple[str, str, str, int]:
    return key.sample, key.cell.strategy, key.cell.budget, key.seed


def _change(old: Sequence[Sample], new: Sequence[Sample]) -> str:
    """The first thing that differs between the samples a run began with and those of now."""
    if len(old) != len(new):
        return f"they were {len(old)} and are now {len(new)}"
    for before, now in zip(old, new, strict=True):
        for name in ("id", "problem", "gold", "level"):
            was, is_now = getattr(before, name), getattr(now, name)
            if was != is_now:
                return f"{name} of sample {before.id} was {_written(was)} and is now {_written(is_now)}"
    return "something in their data differs"


def _written(value: object) -> str:
    return shown(value.value if isinstance(value, Gold) else value)


def _beginning(plan: Plan) -> list[tuple[str, Iterator[tuple[Any, ...]]]]:
    """The recipe and the samples, as statements with their rows."""
    meta = {
        "format": str(FORMAT),
        "recipe": msgspec.json.encode(plan.recipe).decode(),
        "cells": msgspec.json.encode(plan.cells).decode(),
        "difficulty": msgspec.json.encode(plan.difficulty).decode(),
        "digest": plan.digest,
    }
    return [
        ("insert into meta values (?, ?)", iter(meta.items())),
        ("insert into samples values (?, ?, ?, ?, ?, ?)", _sample_rows(plan.samples)),
    ]


def _sample_rows(samples: Sequence[Sample]) -> Iterator[tuple[Any, ...]]:
    for position, sample in enumerate(samples):
        gold = msgspec.json.encode(sample.gold).decode()
        yield sample.id, position, sample.level, sample.problem, gold, json.dumps(sample.meta)
