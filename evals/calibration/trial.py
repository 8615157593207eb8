"""What one calibration sample showed."""

from typing import Any

import msgspec

from ...strategies.adaptive import Adaptive
from ...strategies.grammar import format_strategy
from ..runs.plan import Cell
from ..runs.record import Record
from ..runs.store import Store

Signals = dict[str, float | None]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy `arm` on one problem at a budget of `tokens`: alone (`probe` 0), or behind a probe of
    `probe` samples that showed `signals`: none where a sound pass ended the search in the probe. `case` says
    what could check answers, "" where nothing told it; `scored` whether scores may have chosen the
    answer: a verifier scored, and there were several candidates."""

    problem: str
    seed: int
    tokens: int
    arm: str
    probe: int
    correct: bool
    flops: float
    case: str
    signals: Signals
    scored: bool = False


def trials(store: Store) -> list[Trial]:
    """The trials of a run, failed samples left out. Runs of `adaptive(arm=...)` are its probed arms."""
    found = []
    for record in store.records():
        if record.error is not None or record.cell.tokens is None:
            continue
        found.append(_trial(record, record.cell, store))
    return found


def _trial(record: Record, cell: Cell, store: Store) -> Trial:
    strategy = cell.parsed
    arm, probe, noted = strategy, 0, dict[str, Any]()
    if isinstance(strategy, Adaptive) and strategy.arm is not None:
        arm, probe = strategy.arm, strategy.probe or 0
        graph = msgspec.json.decode(store.graph(record.key) or b'{"graph": {"notes": []}}')
        for note in graph["graph"]["notes"]:
            if note["note"] in (Adaptive.BEGUN, Adaptive.PROBED):
                noted |= note
    return Trial(
        problem=record.sample,
        seed=record.seed,
        tokens=cell.tokens or 0,
        arm=format_strategy(arm),
        probe=probe,
        correct=record.correct is True,
        flops=float(record.usage.flops or 0),
        case=noted.get("case", ""),
        signals={name: noted.get(name) for name in ("score", "agreement")},
        scored=bool(record.verifiers) and len(record.candidates) > 1,
    )
