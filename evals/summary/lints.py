"""What to know before trusting the figures: the faults that papers are criticised for."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ...strategies.grammar import parse_strategy
from ..statistics.intervals import Estimate
from .equal_compute import family_of
from .tables import CellRow, Lint, Summary

MATCHED = 1.25
"""Mean spends further apart than this factor are not equal compute."""
FEW_PROBLEMS = 100
FEW_SEEDS = 3
SMALL_SET, SEEDS_OF_SMALL_SET = 50, 10
"""Sets of so few problems swing by 5 to 15 points from seed to seed (arXiv 2504.07086)."""
TRUNCATED = 0.05
CENSORED = 0.01


def lints(summary: Summary) -> tuple[Lint, ...]:
    """Warnings first, then notes. A pure function of the tables."""
    found = [
        *_incomplete(summary),
        *_few(summary),
        *_unmatched(summary),
        *_cut(summary),
        *_verifier_costs(summary),
        *_oracles(summary),
    ]
    return tuple(sorted(found, key=lambda lint: lint.level != "warning"))


def _incomplete(summary: Summary) -> Iterator[Lint]:
    if summary.done < summary.planned:
        missing = summary.planned - summary.done
        text = f"{missing:,} of {summary.planned:,} samples are missing: left out, not counted as wrong."
        yield Lint(level="warning", code="partial run", text=text)
    yield from _failed(summary)
    ungraded = [(row, row.ungraded) for row in summary.cells if row.ungraded]
    if ungraded:
        text = f"The grader could not tell in {_shares(ungraded)}. They count as wrong."
        yield Lint(level="warning", code="ungraded samples", text=text)


def _failed(summary: Summary) -> Iterator[Lint]:
    if not summary.failures:
        return
    count = sum(row.samples for row in summary.failures)
    most = max(summary.failures, key=lambda row: row.samples)
    named = [(row, row.failed) for row in summary.cells if row.failed]
    where = f" ({_shares(named)})" if named else ""
    text = (
        f"{_counted(count, 'sample')} failed{where}, most often with: {most.error}. They count as wrong, and "
        "are in no mean cost; --resume solves them again."
    )
    yield Lint(level="warning", code="failed samples", text=text)


def _few(summary: Summary) -> Iterator[Lint]:
    if not summary.cells:
        return
    problems = max(row.problems for row in summary.cells)
    seeds = int(summary.recipe.get("seeds", 1))
    if problems < FEW_PROBLEMS:
        widest = max((_width(row.accuracy) for row in summary.cells), default=0.0)
        text = f"{problems} problems leave intervals of up to {100 * widest:.0f} points."
        needed = [t.problems_for_2_points for t in summary.tests if t.problems_for_2_points is not None]
        if needed:
            text += f" A difference of 2 points takes about {max(needed):,} problems to see."
        yield Lint(level="warning", code="few problems", text=text)
    if problems <= SMALL_SET and seeds < SEEDS_OF_SMALL_SET:
        text = (
            f"{_counted(seeds, 'seed')} on {problems} problems: rates of so small a set swing from seed "
            f"to seed; use {SEEDS_OF_SMALL_SET} or more."
        )
        yield Lint(level="warning", code="few seeds", text=text)
    elif seeds < FEW_SEEDS:
        text = (
            f"{_counted(seeds, 'seed')} per problem shows little of the noise between seeds; use {FEW_SEEDS}."
        )
        yield Lint(level="note", code="few seeds", text=text)


def _unmatched(summary: Summary) -> Iterator[Lint]:
    by_number: dict[tuple[int, str], list[CellRow]] = defaultdict(list)
    for row in summary.cells:
        n = getattr(parse_strategy(row.strategy), "n", None)
        if n is not None and _spend(row) is not None:
            by_number[n, row.budget].append(row)
    for (n, budget), rows in by_number.items():
        cheap, dear = min(rows, key=_ordered), max(rows, key=_ordered)
        factor = _factor(dear, cheap)
        if len({family_of(row.strategy) for row in rows}) > 1 and factor > MATCHED:
            text = (
                f"At n={n} and {budget or 'no limit'}, {dear.strategy} spends {factor:.1f} times as much as "
                f"{cheap.strategy}: an equal n is not equal compute."
            )
            yield Lint(level="warning", code="N-matched", text=text)
    by_cell = {(row.strategy, row.budget): row for row in summary.cells}
    factors = []
    for test in summary.tests:
        first, second = by_cell[test.strategy, test.budget], by_cell[test.baseline, test.budget]
        if _spend(first) is not None and _spend(second) is not None:
            factors.append(max(_factor(first, second), _factor(second, first)))
    if factors and max(factors) > MATCHED:
        text = (
            f"The tests at one budget compare unequal mean spend, by up to {max(factors):.1f} times. "
            "Only the table at equal compute compares equal spend."
        )
        yield Lint(level="warning", code="not compute-matched", text=text)
    if len({family_of(row.strategy) for row in summary.cells}) > 1 and not (
        summary.equal_compute and summary.equal_compute.rows
    ):
        text = (
            "No two families reach one spend: nothing is known at equal compute. Sweep a parameter of each."
        )
        yield Lint(level="warning", code="no equal compute", text=text)


def _cut(summary: Summary) -> Iterator[Lint]:
    truncated = [(row, row.truncated) for row in summary.cells if row.truncated > TRUNCATED]
    if truncated:
        text = (
            f"A limit cut the returned candidate in {_shares(truncated)}. A rise along the budget may be "
            "less truncation, not better search."
        )
        yield Lint(level="warning", code="truncation", text=text)
    censored = [(row, row.censored) for row in summary.cells if row.censored > CENSORED]
    if censored:
        text = f"The budget ended before any answer in {_shares(censored)}. These samples count as wrong."
        yield Lint(level="warning", code="censored", text=text)


def _verifier_costs(summary: Summary) -> Iterator[Lint]:
    by_fault: dict[str, list[str]] = defaultdict(list)
    for row in summary.scoring:
        for fault in row.missing:
            by_fault[fault].append(row.strategy)
    for fault, strategies in by_fault.items():
        named = list(dict.fromkeys(strategies))
        text = (
            f"{fault[0].upper()}{fault[1:]}. The spend of {_listed(named[:3], len(named))} is a lower bound."
        )
        yield Lint(level="warning", code="verifier cost missing", text=text)


def _oracles(summary: Summary) -> Iterator[Lint]:
    oracles = [row for row in summary.cells if row.oracle]
    if oracles:
        text = f"The verifier knew the answer in {_names(oracles)}. They are drawn dashed, and not ranked."
        yield Lint(level="warning", code="oracle used", text=text)
    if any(split.oracle for split in summary.difficulty):
        text = (
            "Difficulty comes from gold answers, its samples are in nobody's costs: none could choose by it."
        )
        yield Lint(level="note", code="oracle used", text=text)


def _spend(row: CellRow) -> float | None:
    cost = row.flops or row.tokens
    return None if cost is None or not cost.value > 0 else cost.value


def _ordered(row: CellRow) -> float:
    return _spend(row) or 0.0


def _factor(row: CellRow, other: CellRow) -> float:
    return _ordered(row) / (_spend(other) or float("inf"))


def _width(estimate: Estimate) -> float:
    return 0.0 if estimate.low is None or estimate.high is None else estimate.high - estimate.low


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _shares(named: Sequence[tuple[CellRow, float]]) -> str:
    """The worst three by name."""
    worst = sorted(named, key=lambda pair: -pair[1])
    parts = [f"{share:.1%} of {_name(row)}" for row, share in worst[:3]]
    return _listed(parts, len(worst))


def _names(rows: Sequence[CellRow]) -> str:
    names = list(dict.fromkeys(row.strategy for row in rows))
    return _listed(names[:3], len(names))


def _listed(shown: Sequence[str], total: int) -> str:
    more = f" and {total - len(shown)} more" if total > len(shown) else ""
    return "; ".join(shown) + more


def _name(row: CellRow) -> str:
    return f"{row.strategy} @ {row.budget or 'no limit'}"
