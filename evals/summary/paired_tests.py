"""Paired tests of strategies at one budget."""

from collections.abc import Mapping, Sequence

import msgspec

from ..runs.plan import Cell
from ..statistics.paired import compare, holm
from ..statistics.power import problems_needed, spread_of
from .outcomes import CellRecords, shared_problems
from .tables import PairedTest

GAP = 0.02
"""The difference of rates that a run should be able to show."""


def paired_tests(cells: Mapping[Cell, CellRecords], order: Sequence[Cell]) -> tuple[PairedTest, ...]:
    """Every strategy against the first one, at each budget that both have."""
    tests: list[PairedTest] = []
    first = order[0].strategy if order else ""
    for cell in order:
        baseline = Cell(strategy=first, budget=cell.budget)
        if cell.strategy == first or cell not in cells or baseline not in cells:
            continue
        test = _paired_test(cells[cell], cells[baseline])
        if test is not None:
            tests.append(test)
    known = [test.comparison.p for test in tests if test.comparison.p is not None]
    adjusted = iter(holm(known))
    return tuple(
        test if test.comparison.p is None else msgspec.structs.replace(test, p_holm=next(adjusted))
        for test in tests
    )


def _paired_test(cell: CellRecords, baseline: CellRecords) -> PairedTest | None:
    problems = shared_problems(cell, baseline)
    if not problems:
        return None
    first, second = cell.outcomes(problems), baseline.outcomes(problems)
    return PairedTest(
        strategy=cell.cell.strategy,
        baseline=baseline.cell.strategy,
        budget=cell.cell.budget,
        comparison=compare(first, second),
        p_holm=None,
        problems_for_2_points=_problems_for_gap(first, second),
    )


def _problems_for_gap(first: list[list[float]], second: list[list[float]]) -> int | None:
    """None where samples are unequally many (a run that was broken off) or too few to tell."""
    if len({len(row) for row in first}) != 1 or len({len(row) for row in second}) != 1 or len(first) < 2:
        return None
    spread = spread_of(first, second)
    return problems_needed(GAP, spread) if spread.per_problem > 0 else None
