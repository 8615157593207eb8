"""Records sorted into what statistics read: one row of outcomes per problem, by cell."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ...reasoning.solution import Reason
from ..runs.plan import Cell
from ..runs.record import Record
from ..statistics.intervals import Estimate, mean_estimate

_CUT_STOPS = frozenset({"length", "budget", "context"})


class CellRecords(msgspec.Struct, frozen=True):
    """The records of one cell by problem, in the suite's order, each problem's by seed."""

    cell: Cell
    by_problem: Mapping[str, Sequence[Record]]

    @property
    def records(self) -> list[Record]:
        return [record for row in self.by_problem.values() for record in row]

    def outcomes(self, problems: Iterable[str] | None = None) -> list[list[float]]:
        """1 for a right sample and 0 for any other, one row for each of the problems (None: all)."""
        chosen = self.by_problem if problems is None else problems
        return [[float(record.correct is True) for record in self.by_problem[name]] for name in chosen]

    def mean_cost(self, cost: Callable[[Record], float | None]) -> Estimate | None:
        """The mean cost of a sample that did not fail, its interval over problems; None where it is not known
        of every such sample."""
        rows = [
            [cost(record) for record in row if record.reason != Reason.FAILED]
            for row in self.by_problem.values()
        ]
        known = [[value for value in row if value is not None] for row in rows]
        if any(len(a) != len(b) for a, b in zip(rows, known, strict=True)) or not any(known):
            return None
        estimate = mean_estimate([math.fsum(row) / len(row) for row in known if row])
        low = None if estimate.low is None else max(0.0, estimate.low)
        return msgspec.structs.replace(estimate, low=low)


def by_cell(records: Iterable[Record]) -> dict[Cell, CellRecords]:
    """The records of each cell."""
    sorted_out: dict[Cell, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        sorted_out[record.cell][record.sample].append(record)
    return {
        cell: CellRecords(
            cell, {name: sorted(row, key=lambda record: record.seed) for name, row in rows.items()}
        )
        for cell, rows in sorted_out.items()
    }


def shared_problems(first: CellRecords, second: CellRecords) -> list[str]:
    """The problems that both have, in the suite's order."""
    return [name for name in first.by_problem if name in second.by_problem]


def is_truncated(record: Record) -> bool:
    """Whether a limit or the context cut the returned candidate."""
    if record.text and record.candidates:
        chosen = next((c for c in record.candidates if c.answer == record.answer), record.candidates[0])
        return not chosen.complete and chosen.stop in _CUT_STOPS
    return record.censored


def flops(record: Record) -> float | None:
    return record.usage.flops


def tokens(record: Record) -> float | None:
    return record.usage.tokens


def engine_figure(name: str) -> Callable[[Record], float | None]:
    """A figure of `usage.engine`."""
    return lambda record: record.usage.engine.get(name)
