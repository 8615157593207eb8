"""Reader of a run's own records: the candidates of its best-of-n samples."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...reasoning.solution import Reason
from ...strategies.best_of_n import BestOfN
from ..runs.plan import Cell
from ..runs.record import Record, branch_texts
from ..runs.store import Store
from .recording import Completion, RecordedProblem, Recording

_LIMITED = (Reason.BUDGET, Reason.DEADLINE, Reason.CANCELLED)
"""Ends of a search that may have cut some of its candidates and not others."""


def read_run(folder: Path) -> Recording:
    """The largest set of exchangeable samples of a run: of one best-of-n setting, all its seeds together.

    Refused with `UsageError` where there is none: tree and adaptive strategies, samples that stopped early,
    and such as a shared limit cut, say nothing about another number of samples.
    """
    with Store.read(folder) as store:
        usable: dict[Cell, list[Record]] = {}
        reasons: list[str] = []
        by_cell: dict[Cell, list[Record]] = defaultdict(list)
        for record in store.records():
            by_cell[record.cell].append(record)
        for cell, records in by_cell.items():
            if (fault := _fault(cell, records)) is None:
                usable[cell] = records
            else:
                reasons.append(f"{cell}: {fault}")
        if not usable:
            raise UsageError(f"{folder}: no exchangeable samples ({'; '.join(reasons) or 'no records'})")
        cell = max(usable, key=lambda cell: sum(len(record.candidates) for record in usable[cell]))
        problems = tuple(_problems(store, usable[cell]))
    return Recording(name=f"{folder.name}: {cell}", problems=problems)


def _fault(cell: Cell, records: Iterable[Record]) -> str | None:
    """Why the samples of a cell are not exchangeable, None where they are."""
    strategy = cell.parsed
    if not isinstance(strategy, BestOfN):
        return "is not best_of_n"
    if strategy.inner is not None:
        return "inner searches found its candidates, and what each of them spent is not recorded"
    if strategy.n is None:
        return "n was left to the budget"
    for record in records:
        if record.reason == Reason.FAILED:
            return f"{record.sample} failed (--resume solves it again)"
        if len(record.candidates) != strategy.n:
            return f"{record.sample} has {len(record.candidates)} candidates of {strategy.n}"
        if record.reason in _LIMITED and not all(candidate.complete for candidate in record.candidates):
            return f"a candidate of {record.sample} was cut"
        if strategy.stop_on_verified and any(c.verified is not None for c in record.candidates):
            return "it stopped at the first verified candidate (record it with stop_on_verified=false)"
    return None


def _problems(store: Store, records: Iterable[Record]) -> Iterator[RecordedProblem]:
    by_sample: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_sample[record.sample].append(record)
    for sample in store.samples():
        if sample.id in by_sample:
            yield RecordedProblem(
                id=sample.id,
                problem=sample.problem,
                level=sample.level,
                gold=sample.gold.value,
                completions=tuple(
                    completion
                    for record in by_sample[sample.id]
                    for completion in _completions(record, store.graph(record.key))
                ),
            )


def _completions(record: Record, graph: bytes | None) -> Iterator[Completion]:
    texts = {} if graph is None else branch_texts(msgspec.json.decode(graph))
    for candidate in record.candidates:
        yield Completion(
            text=texts.get(candidate.id, ""),
            answer=candidate.answer,
            correct=candidate.correct,
            tokens=candidate.tokens,
            score=candidate.score,
            complete=True,  # or cut by a limit of its own, as any other so long would have been
        )
