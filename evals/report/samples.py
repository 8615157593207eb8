"""The samples of a run for the page's browser: an index of all problems that are kept, and for each a
compressed bundle of its records and search graphs."""

import base64
import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..runs.plan import Cell
from ..runs.record import Record
from ..runs.store import Store
from ..suites.base import Sample
from ..summary.cells import outcome
from ..summary.tables import OUTCOMES

CAP_BYTES = 16 * 2**20
"""Compressed bytes of bundles that a page holds, before base64: it opens in a second or two."""
_LONGEST_TEXT = 2000


class Bundle(msgspec.Struct, frozen=True):
    """One problem of the page: `data` is base64 of zlib of the JSON that `_content` gives."""

    id: str
    data: str


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """What the browser shows. `index` is plain data, `bundles` are in its order of problems; `kept` of
    `total` samples are there, those of whole problems drawn evenly by the hash of their names."""

    index: dict[str, Any]
    bundles: tuple[Bundle, ...]
    kept: int
    total: int


def collect(store: Store, cap_bytes: int = CAP_BYTES) -> Samples:
    """The samples of a run, as many whole problems as the cap holds; at least one."""
    cells = (*store.cells, *(() if store.difficulty is None else (store.difficulty,)))
    by_problem: dict[str, list[Record]] = defaultdict(list)
    total = 0
    for record in store.records():
        by_problem[record.sample].append(record)
        total += 1
    samples = {sample.id: sample for sample in store.samples() if sample.id in by_problem}
    bundles: dict[str, Bundle] = {}
    size = 0
    for name in sorted(samples, key=_drawn):
        data = zlib.compress(msgspec.json.encode(_content(by_problem[name], cells, store)), 9)
        if bundles and size + len(data) > cap_bytes:
            break
        size += len(data)
        bundles[name] = Bundle(name, base64.b64encode(data).decode())
    kept = [name for name in samples if name in bundles]
    seeds = sorted({record.seed for name in kept for record in by_problem[name]})
    index = {
        "settings": [_setting(cell, base=cell == store.difficulty) for cell in cells],
        "seeds": seeds,
        "outcomes": OUTCOMES,
        "problems": [_entry(samples[name], by_problem[name], cells, seeds) for name in kept],
    }
    return Samples(
        index=index,
        bundles=tuple(bundles[name] for name in kept),
        kept=sum(len(by_problem[name]) for name in kept),
        total=total,
    )


def _drawn(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def _setting(cell: Cell, *, base: bool) -> dict[str, Any]:
    return {"strategy": cell.strategy, "budget": cell.budget or "no limit", "base": base}


def _entry(
    sample: Sample, records: Iterable[Record], cells: Sequence[Cell], seeds: Sequence[int]
) -> dict[str, Any]:
    """A line of the problems' list. `grid` has one letter for each setting and seed, setting by setting: the
    place of its outcome in `OUTCOMES`, or a dot where there is no sample."""
    found = {(record.cell, record.seed): str(OUTCOMES.index(outcome(record))) for record in records}
    grid = "".join(found.get((cell, seed), ".") for cell in cells for seed in seeds)
    return {
        "id": sample.id,
        "text": _shortened(sample.problem),
        "gold": _gold(sample),
        "level": sample.level,
        "grid": grid,
    }


def _gold(sample: Sample) -> str:
    """The gold answer as text; a struct of tests shows as JSON."""
    fields: Any = msgspec.to_builtins(sample.gold)
    value = fields.get("value", fields) if isinstance(fields, Mapping) else fields
    return _shortened(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _content(records: Iterable[Record], cells: Sequence[Cell], store: Store) -> list[dict[str, Any]]:
    """One object per record, its graph as node-link data."""
    return list(_objects(records, cells, store))


def _objects(records: Iterable[Record], cells: Sequence[Cell], store: Store) -> Iterator[dict[str, Any]]:
    for record in records:
        graph = store.graph(record.key)
        yield {
            "setting": cells.index(record.cell),
            "seed": record.seed,
            "outcome": OUTCOMES.index(outcome(record)),
            "answer": record.answer,
            "why": record.grade_reason,
            "reason": record.reason,
            "score": record.score,
            "verified": record.verified,
            "text": record.text,
            "error": record.error,
            "notes": record.notes,
            "usage": msgspec.to_builtins(record.usage),
            "candidates": msgspec.to_builtins(record.candidates),
            "graph": None if graph is None else msgspec.Raw(graph),
        }


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
