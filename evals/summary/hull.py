"""The Pareto hull as advice: the setting to use from each spend on, and what the step up buys."""

from collections.abc import Mapping, Sequence

from ..runs.plan import Cell
from ..statistics.intervals import Estimate
from ..statistics.paired import compare
from .outcomes import CellRecords, shared_problems
from .tables import CellRow, EqualCompute, HullStep


def hull_steps(
    cells: Mapping[Cell, CellRecords], rows: Sequence[CellRow], table: EqualCompute | None
) -> tuple[HullStep, ...]:
    """The hull's settings from the cheapest on, each against the one before it by problem."""
    if table is None:
        return ()
    by_name = {str(Cell(strategy=row.strategy, budget=row.budget)): row for row in rows}
    steps: list[HullStep] = []
    for name, _, _ in table.hull:
        row = by_name[name]
        before = None if not steps else Cell(strategy=steps[-1].strategy, budget=steps[-1].budget)
        steps.append(_step(cells, row, getattr(row, table.axis), before))
    return tuple(steps)


def _step(cells: Mapping[Cell, CellRecords], row: CellRow, cost: Estimate, before: Cell | None) -> HullStep:
    gain, p = None, None
    if before is not None:
        here = cells[Cell(strategy=row.strategy, budget=row.budget)]
        problems = shared_problems(here, cells[before])
        if problems:
            comparison = compare(here.outcomes(problems), cells[before].outcomes(problems))
            gain, p = comparison.difference, comparison.p
    return HullStep(
        strategy=row.strategy, budget=row.budget, cost=cost, accuracy=row.accuracy, gain=gain, p=p
    )
