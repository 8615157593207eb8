"""The row of one cell."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from ...reasoning.solution import Reason
from ..runs.record import Costs, Record
from ..statistics.intervals import rate_estimate
from .outcomes import CellRecords, engine_figure, flops, is_truncated, tokens
from .tables import OUTCOMES, CellRow


def cell_row(cell: CellRecords, *, oracle: bool) -> CellRow:
    """Accuracy, costs and shares of one cell with at least one record."""
    records = cell.records
    count = len(records)
    return CellRow(
        strategy=cell.cell.strategy,
        budget=cell.cell.budget,
        problems=len(cell.by_problem),
        samples=count,
        accuracy=rate_estimate(cell.outcomes()),
        flops=cell.mean_cost(flops),
        tokens=cell.mean_cost(tokens),
        seconds=cell.mean_cost(engine_figure("seconds")),
        kv=cell.mean_cost(engine_figure("kv_peak_tokens")),
        kv_held=cell.mean_cost(engine_figure("kv_held_peak_tokens")),
        kv_unshared=cell.mean_cost(engine_figure("kv_unshared_peak_tokens")),
        censored=sum(record.censored for record in records) / count,
        truncated=sum(map(is_truncated, records)) / count,
        abstained=sum(record.answer is None for record in records) / count,
        failed=sum(record.reason == Reason.FAILED for record in records) / count,
        ungraded=sum(record.correct is None for record in records) / count,
        mean_costs=_mean_costs([record.costs for record in records if record.reason != Reason.FAILED]),
        reasons=dict(sorted(Counter(record.reason for record in records).items())),
        outcomes=_outcomes(records),
        oracle=oracle or any(note.startswith("oracle:") for record in records for note in record.notes),
    )


def _mean_costs(costs: list[Costs]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name in msgspec.structs.fields(Costs):
        known = [value for cost in costs if (value := getattr(cost, name.name)) is not None]
        means[name.name] = sum(known) / len(known) if known and len(known) == len(costs) else None
    return means


def _outcomes(records: Sequence[Record]) -> dict[str, float]:
    counts = Counter(map(outcome, records))
    return {name: counts[name] / len(records) for name in OUTCOMES}


def outcome(record: Record) -> str:
    """The one of `OUTCOMES` that a sample counts under."""
    if record.reason == Reason.FAILED:
        return "failed"
    if record.correct is None:
        return "ungraded"
    if record.censored:
        return "censored"
    if record.correct:
        return "right"
    return "no answer" if record.answer is None else "wrong"
