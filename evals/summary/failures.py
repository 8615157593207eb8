"""Samples that failed, by what failed them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...reasoning.solution import Reason
from ..runs.plan import Cell
from ..runs.record import Record
from .outcomes import CellRecords
from .tables import FailureRow

REASON_MAX = 300
"""Characters of a reason that are shown."""


def failure_rows(
    cells: Mapping[Cell, CellRecords], order: Sequence[Cell], base: CellRecords | None
) -> tuple[FailureRow, ...]:
    """One row for each error of each cell, the most frequent of a cell first; the base samples last."""
    rows: list[FailureRow] = []
    for cell in (*(cells[cell] for cell in order if cell in cells), *(() if base is None else (base,))):
        by_error: dict[str, list[Record]] = defaultdict(list)
        for record in cell.records:
            if record.reason == Reason.FAILED:
                by_error[_one_line(record.error)].append(record)
        for error, failed in sorted(by_error.items(), key=lambda pair: -len(pair[1])):
            rows.append(
                FailureRow(
                    strategy=cell.cell.strategy,
                    budget=cell.cell.budget,
                    error=error,
                    samples=len(failed),
                    example=failed[0].sample,
                    seed=failed[0].seed,
                )
            )
    return tuple(rows)


def _one_line(error: str | None) -> str:
    text = " ".join((error or "no reason was recorded").split())
    return text if len(text) <= REASON_MAX else f"{text[: REASON_MAX - 1]}…"
