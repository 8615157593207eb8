"""Whether what the verifiers worked is inside the cost that settings are compared by."""

from collections.abc import Iterator, Mapping, Sequence

from ...engine.errors import UsageError
from ...reasoning.solution import Reason
from ...verifiers.registry import load_verifier
from ..runs.plan import Cell
from ..runs.record import Record
from .outcomes import CellRecords
from .tables import CellRow, EqualCompute, ScoringRow

CHECKS = frozenset({"replay", "gold"})
"""Verifiers that compute in this process what one arithmetic check takes: there is no cost to miss."""
RECORDED = "recorded"
"""Replays the scores of a model whose work was not recorded."""


def compared_axis(rows: Sequence[CellRow], table: EqualCompute | None) -> str | None:
    """The cost that the settings are compared by: that of the table at equal compute, else FLOPs where they
    are known of all, else tokens; None where neither is."""
    if table is not None:
        return table.axis
    return next((axis for axis in ("flops", "tokens") if all(getattr(row, axis) for row in rows)), None)


def scoring_rows(
    cells: Mapping[Cell, CellRecords], order: Sequence[Cell], axis: str | None
) -> tuple[ScoringRow, ...]:
    """One row for each cell that a verifier worked for."""
    rows = (_row(cells[cell], axis) for cell in order if cell in cells)
    return tuple(row for row in rows if row is not None)


def _row(cell: CellRecords, axis: str | None) -> ScoringRow | None:
    records = [record for record in cell.records if record.reason != Reason.FAILED]
    names = tuple(sorted({name for record in records for name in record.verifiers}))
    if not names and not any(map(_scored, records)):
        return None
    positions = [record.usage.scored_tokens for record in records]
    known = [count for count in positions if count is not None]
    mean = sum(known) / len(known) if known and len(known) == len(positions) else None
    missing = tuple(_missing(names, mean, axis))
    return ScoringRow(
        strategy=cell.cell.strategy,
        budget=cell.cell.budget,
        verifiers=names,
        positions=mean,
        axis=axis,
        inside=not missing,
        missing=missing,
    )


def _scored(record: Record) -> bool:
    return any(candidate.score is not None for candidate in record.candidates)


def _missing(names: Sequence[str], positions: float | None, axis: str | None) -> Iterator[str]:
    """What of the verifiers' work the compared cost leaves out, one phrase for each."""
    if not names:
        yield "who gave the scores was not recorded"
    for name in names:
        if name in CHECKS:
            continue
        if name == RECORDED:
            yield "what gave the recorded scores was not recorded with its cost"
        elif not _models(name):
            yield f"verifier {name} runs outside of the engine: its processor time is in seconds only"
        elif axis != "flops":
            yield f"what the model of verifier {name} read is in FLOPs, not in {axis or 'any known cost'}"
        elif positions is None:
            yield f"what the model of verifier {name} read is not known"


def _models(name: str) -> tuple[str, ...]:
    """The models that a verifier needs in the engine; none for one that is not registered here."""
    try:
        return tuple(getattr(load_verifier(name), "models", ()))
    except UsageError:
        return ()
