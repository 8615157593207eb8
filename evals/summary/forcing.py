"""The figures of s1 for sweeps of `chain`: Control, Scaling and Performance of each family of settings."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...strategies.grammar import format_strategy, parse_strategy
from ..runs.plan import Cell
from ..statistics.forcing import control, performance, scaling
from .outcomes import CellRecords
from .tables import ForcingRow

_NUMBER = re.compile(r"=-?\d[\d.e+-]*(?=[,)])")


def forcing_rows(cells: Mapping[Cell, CellRecords], order: Sequence[Cell]) -> tuple[ForcingRow, ...]:
    """A row for each family whose records tell how long their chains thought."""
    families: dict[tuple[str, str], list[CellRecords]] = defaultdict(list)
    for cell in order:
        records = cells.get(cell)
        if records is not None and any(record.thinking for record in records.records):
            families[_method(cell.strategy), cell.budget].append(records)
    return tuple(_row(family, budget, settings) for (family, budget), settings in families.items())


def _method(strategy: str) -> str:
    """The strategy with the names of its numbers, without their values: `chain(waits=2)` and `chain(waits=4)`
    are settings of `chain(waits)`, and `chain(max_think=64)` is of another method."""
    return _NUMBER.sub("", format_strategy(parse_strategy(strategy)))


def _row(family: str, budget: str, settings: Sequence[CellRecords]) -> ForcingRow:
    chains = [chain for cell in settings for record in cell.records for chain in record.thinking]
    within = [chain.within for chain in chains if chain.within is not None]
    points = sorted((_setting(cell) for cell in settings), key=lambda setting: setting[1:])
    sweep = [(tokens, accuracy) for _, tokens, accuracy in points]
    slope = scaling(sweep)
    return ForcingRow(
        family=family,
        budget=budget,
        control=control(within) if within else None,
        scaling=None if slope is None else 100 * 100 * slope,
        performance=performance(sweep),
        cut=sum(chain.cut for chain in chains) / len(chains),
        settings=tuple(points),
    )


def _setting(cell: CellRecords) -> tuple[str, float, float]:
    lengths = [chain.tokens for record in cell.records for chain in record.thinking]
    outcomes = [value for row in cell.outcomes() for value in row]
    return cell.cell.strategy, math.fsum(lengths) / len(lengths), math.fsum(outcomes) / len(outcomes)


HEADS = ("strategy", "budget", "control", "scaling (points per 100 tokens)", "performance", "cut", "settings")


def forcing_cells(rows: Sequence[ForcingRow]) -> Iterator[tuple[str, ...]]:
    """The rows as text, under `HEADS`."""
    for row in rows:
        yield (
            row.family,
            row.budget,
            "no limits" if row.control is None else f"{row.control:.1%}",
            "one length" if row.scaling is None else f"{row.scaling:+.2f}",
            f"{row.performance:.1%}",
            f"{row.cut:.1%}",
            "; ".join(f"{tokens:.0f}: {accuracy:.1%}" for _, tokens, accuracy in row.settings),
        )
