"""How good the verifier's scores were, by the grade of every candidate."""

from collections.abc import Callable, Mapping, Sequence

from ..runs.plan import Cell
from ..runs.record import GradedCandidate
from ..statistics.intervals import Estimate, rate_estimate
from ..statistics.ranking import auroc, brier, calibration, calibration_error
from .outcomes import CellRecords
from .tables import VerifierRow

ACCEPTED_FROM = 0.5
"""The least score that counts as accepted, where the verifier gives no verdict."""
BASE = "base samples"


def verifier_rows(
    cells: Mapping[Cell, CellRecords], order: Sequence[Cell], base: CellRecords | None
) -> tuple[VerifierRow, ...]:
    """One row for each cell with scored candidates, and for the base samples: those are not selected."""
    rows = [_row(cells[cell], cell.strategy, cell.budget) for cell in order if cell in cells]
    if base is not None:
        rows.insert(0, _row(base, BASE, base.cell.budget))
    return tuple(row for row in rows if row is not None)


def _row(cell: CellRecords, strategy: str, budget: str) -> VerifierRow | None:
    graded = [
        [c for record in records for c in record.candidates if c.correct is not None]
        for records in cell.by_problem.values()
    ]
    problems = [[c for c in row if c.score is not None] for row in graded]
    pairs = [[(float(c.score or 0), c.correct is True) for c in row] for row in problems]
    scored = [pair for row in pairs for pair in row]
    if not scored:
        return None
    bins = calibration(scored)
    return VerifierRow(
        strategy=strategy,
        budget=budget,
        candidates=sum(map(len, graded)),
        scored=len(scored),
        sound=all(c.verified is not None for row in problems for c in row),
        right=sum(is_right for _, is_right in scored) / len(scored),
        false_positive=_rate(problems, _accepted, among=lambda c: c.correct is False),
        false_negative=_rate(problems, lambda c: not _accepted(c), among=lambda c: c.correct is True),
        auroc=auroc(pairs),
        brier=brier(scored) if all(0 <= score <= 1 for score, _ in scored) else None,
        calibration_error=calibration_error(bins),
        calibration=bins,
    )


def _accepted(candidate: GradedCandidate) -> bool:
    if candidate.verified is not None:
        return candidate.verified
    return candidate.score is not None and candidate.score >= ACCEPTED_FROM


def _rate(
    problems: Sequence[Sequence[GradedCandidate]],
    counted: Callable[[GradedCandidate], bool],
    *,
    among: Callable[[GradedCandidate], bool],
) -> Estimate | None:
    rows = [[float(counted(c)) for c in row if among(c)] for row in problems]
    rows = [row for row in rows if row]
    return rate_estimate(rows) if rows else None
