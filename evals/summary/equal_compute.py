"""Families of strategies at equal compute: settings mixed problem by problem between measured costs."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from ...strategies.grammar import format_strategy, parse_strategy
from ..runs.plan import Cell
from ..runs.sweep import split_commas
from ..statistics.compute import Mix, Point, bracket, pareto_hull
from ..statistics.intervals import Estimate, mean_estimate
from ..statistics.paired import holm, paired_t
from .outcomes import CellRecords
from .tables import CellRow, EqualCompute, EqualComputeRow

_CALL = re.compile(r"(\w[\w-]*)\((.*)\)", re.DOTALL)
_NUMBER = re.compile(r"-?[\d.]+(?:e[-+]?\d+)?|none")
STEPS = 4
"""Costs at which families are compared besides those that single settings have."""


class Setting(NamedTuple):
    """A measured setting of a family: its mean cost, and the mean outcome of each problem."""

    row: CellRow
    cost: float
    outcomes: Mapping[str, float]


def family_of(strategy: str) -> str:
    """The strategy without its numbers: `best_of_n(n=16, select=majority)` belongs to
    `best_of_n(select=majority)`."""
    return _without_numbers(format_strategy(parse_strategy(strategy)))


def _without_numbers(text: str) -> str:
    call = _CALL.fullmatch(text)
    if call is None:
        return text
    settings = [setting.strip().partition("=") for setting in split_commas(call[2])]
    kept = [
        f"{name}={_without_numbers(value)}" for name, _, value in settings if not _NUMBER.fullmatch(value)
    ]
    return f"{call[1]}({', '.join(kept)})" if kept else call[1]


def equal_compute(cells: Mapping[Cell, CellRecords], rows: Sequence[CellRow]) -> EqualCompute | None:
    """Families at equal mean cost, tested against the first one there; None where no cost is known."""
    for axis in ("flops", "tokens"):
        settings = _settings(cells, [row for row in rows if not row.oracle], axis)
        if settings is not None:
            break
    else:
        return None
    families: dict[str, list[Setting]] = defaultdict(list)
    for setting in settings:
        families[family_of(setting.row.strategy)].append(setting)
    table = [row for cost in _costs(list(families.values())) for row in _rows_at(cost, families)]
    return EqualCompute(axis=axis, rows=_with_holm(table), hull=_hull(settings))


def _settings(cells: Mapping[Cell, CellRecords], rows: Sequence[CellRow], axis: str) -> list[Setting] | None:
    settings = []
    for row in rows:
        cost: Estimate | None = getattr(row, axis)
        if cost is None or not cost.value > 0:
            return None
        records = cells[Cell(strategy=row.strategy, budget=row.budget)]
        means = {
            name: math.fsum(outcomes) / len(outcomes)
            for name, outcomes in zip(records.by_problem, records.outcomes(), strict=True)
        }
        settings.append(Setting(row, cost.value, means))
    return settings or None


def _costs(families: Sequence[Sequence[Setting]]) -> list[float]:
    """Costs that two families or more reach: the cheapest of each, and steps over where they overlap."""
    ends = [(min(s.cost for s in family), max(s.cost for s in family)) for family in families]
    if len(ends) < 2:
        return []
    low, high = sorted(e[0] for e in ends)[1], sorted(e[1] for e in ends)[-2]
    steps = [low * (high / low) ** (i / (STEPS - 1)) for i in range(STEPS)] if low < high else []
    costs = {*steps, *(end[0] for end in ends)}
    return sorted(c for c in costs if sum(a <= c <= b for a, b in ends) >= 2)


def _rows_at(cost: float, families: Mapping[str, Sequence[Setting]]) -> list[EqualComputeRow]:
    mixed = {name: _mixed(settings, cost) for name, settings in families.items()}
    baseline = next(name for name, mix in mixed.items() if mix is not None)
    rows = []
    for name, mix in mixed.items():
        if mix is None:
            rows.append(EqualComputeRow(family=name, cost=cost, accuracy=None, between=None, weight=None))
            continue
        difference, p = (None, None) if name == baseline else _against(mix.outcomes, mixed[baseline])
        rows.append(
            EqualComputeRow(
                family=name,
                cost=cost,
                accuracy=mix.accuracy,
                between=mix.between,
                weight=mix.weight,
                baseline=None if name == baseline else baseline,
                difference=difference,
                p=p,
            )
        )
    return rows


class _Mixed(NamedTuple):
    accuracy: Estimate
    between: tuple[str, str]
    weight: float
    outcomes: Mapping[str, float]


def _mixed(settings: Sequence[Setting], cost: float) -> _Mixed | None:
    """The family at that cost: the two settings around it, mixed problem by problem."""
    mix: Mix | None = bracket([setting.cost for setting in settings], cost)
    if mix is None:
        return None
    low, high = settings[mix.cheaper], settings[mix.dearer]
    outcomes = {
        name: (1 - mix.weight) * value + mix.weight * high.outcomes[name]
        for name, value in low.outcomes.items()
        if name in high.outcomes
    }
    if not outcomes:
        return None
    estimate = mean_estimate(list(outcomes.values()))
    estimate = msgspec.structs.replace(
        estimate,
        low=None if estimate.low is None else max(0.0, estimate.low),
        high=None if estimate.high is None else min(1.0, estimate.high),
    )
    return _Mixed(estimate, (_named(low), _named(high)), mix.weight, outcomes)


def _against(outcomes: Mapping[str, float], baseline: _Mixed | None) -> tuple[Estimate | None, float | None]:
    if baseline is None:
        return None, None
    differences = [
        value - baseline.outcomes[name] for name, value in outcomes.items() if name in baseline.outcomes
    ]
    if len(differences) < 2:
        return None, None
    return mean_estimate(differences), paired_t(differences)


def _with_holm(rows: Sequence[EqualComputeRow]) -> tuple[EqualComputeRow, ...]:
    adjusted = iter(holm([row.p for row in rows if row.p is not None]))
    return tuple(
        row if row.p is None else msgspec.structs.replace(row, p_holm=next(adjusted)) for row in rows
    )


def _hull(settings: Sequence[Setting]) -> tuple[tuple[str, float, float], ...]:
    named = {Point(s.cost, s.row.accuracy.value): _named(s) for s in reversed(settings)}
    return tuple((named[point], point.cost, point.accuracy) for point in pareto_hull(named))


def _named(setting: Setting) -> str:
    return str(Cell(strategy=setting.row.strategy, budget=setting.row.budget))
