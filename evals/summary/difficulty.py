"""Accuracy by difficulty, and what the samples that sort the problems say about coverage."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from ..runs.plan import Cell
from ..runs.record import Record
from ..statistics.intervals import Estimate, mean_estimate, rate_estimate
from ..statistics.subsets import pass_at_k
from .outcomes import CellRecords
from .tables import Coverage, Difficulty, DifficultyRow

QUINTILES = 5


def by_level(cells: Mapping[Cell, CellRecords], order: Sequence[Cell]) -> Difficulty | None:
    """By the data's own levels; None where it has none, or one only."""
    groups: dict[str, list[str]] = defaultdict(list)
    for cell in cells.values():
        for name, records in cell.by_problem.items():
            if records[0].level is not None and name not in groups[records[0].level]:
                groups[records[0].level].append(name)
    if len(groups) < 2:
        return None
    return Difficulty(by="level", oracle=False, rows=_rows(cells, order, dict(sorted(groups.items()))))


def by_quintile(
    cells: Mapping[Cell, CellRecords], order: Sequence[Cell], base: CellRecords | None
) -> Difficulty | None:
    """By quintiles of pass@1 in the base samples, hardest first; ties stay in the suite's order."""
    if base is None:
        return None
    rates = {name: _pass_at_1(records[0]) for name, records in base.by_problem.items()}
    ranked = sorted(
        (name for name, rate in rates.items() if rate is not None), key=lambda name: rates[name] or 0
    )
    if len(ranked) < QUINTILES:
        return None
    groups: dict[str, list[str]] = defaultdict(list)
    for place, name in enumerate(ranked):
        groups[f"{place * QUINTILES // len(ranked) + 1} of {QUINTILES}"].append(name)
    return Difficulty(by="quintile", oracle=True, rows=_rows(cells, order, groups))


def coverage(base: CellRecords | None) -> tuple[Coverage, ...]:
    """pass@k of the base samples at powers of two, without bias, for problems that have them all."""
    if base is None:
        return ()
    counts = [_counts(records[0]) for records in base.by_problem.values()]
    n = max((total for total, _ in counts), default=0)
    full = [right for total, right in counts if total == n]
    powers = [2**i for i in range(n.bit_length()) if 2**i <= n]
    return tuple(
        Coverage(k=k, pass_at_k=_rate(mean_estimate([pass_at_k(n, right, k) for right in full])))
        for k in powers
    )


def _rate(estimate: Estimate) -> Estimate:
    """The estimate with its ends in [0, 1]."""
    low = None if estimate.low is None else max(0.0, estimate.low)
    high = None if estimate.high is None else min(1.0, estimate.high)
    return msgspec.structs.replace(estimate, low=low, high=high)


def _counts(record: Record) -> tuple[int, int]:
    return len(record.candidates), sum(candidate.correct is True for candidate in record.candidates)


def _pass_at_1(record: Record) -> float | None:
    total, right = _counts(record)
    return right / total if total else None


def _rows(
    cells: Mapping[Cell, CellRecords], order: Sequence[Cell], groups: Mapping[str, Sequence[str]]
) -> tuple[DifficultyRow, ...]:
    rows = []
    for cell in order:
        if cell not in cells:
            continue
        for difficulty, names in groups.items():
            outcomes = cells[cell].outcomes(name for name in names if name in cells[cell].by_problem)
            if math.fsum(map(len, outcomes)):
                rows.append(
                    DifficultyRow(
                        strategy=cell.strategy,
                        budget=cell.budget,
                        difficulty=difficulty,
                        accuracy=rate_estimate(outcomes),
                    )
                )
    return tuple(rows)
