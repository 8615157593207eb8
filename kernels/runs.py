"""Runs of keys that rows read together, found from the block tables of a step.

Tables that begin with equal entries are branches of a tree. A node of it is a range of entries under a set
of rows; it is read once per tile of rows where that saves more bytes than the partial results of its rows
cost, and is left to the runs below it otherwise. As a node ends where its rows part, no two nodes in a row
have the same rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from .tables import RowSpan, TreeSpan, shared_blocks
from .work import NARROW, WIDE, Tiling

_SHARING_COST = 2
"""Keys that a slot of one head costs: a partial result is 8 bytes per value, a key and its value 4 (bf16)."""
_ALL = -1


@dataclass(slots=True)
class RowMasks:
    """Per packed row what it sees: keys `low <= k < limit`, and from `base` on those of its `bits`."""

    limit: np.ndarray
    low: np.ndarray
    bits: np.ndarray
    base: np.ndarray
    limited: bool
    windowed: bool
    treed: bool


def row_masks(spans: Sequence[RowSpan], window: int | None) -> RowMasks:
    """Masks of the rows of all spans in order; `window` positions may be seen, None for all.

    A tree node's place in its sequence is the number of its ancestors behind the start, not its slot.
    """
    counts = np.fromiter((span.rows for span in spans), np.int64, len(spans))
    starts = np.fromiter((span.start for span in spans), np.int64, len(spans))
    begins = np.cumsum(counts) - counts
    limit = np.repeat(starts - begins, counts) + np.arange(counts.sum()) + 1
    bits, base = np.full(len(limit), _ALL, np.int64), np.zeros(len(limit), np.int64)
    low = np.zeros(len(limit), np.int64) if window is None else np.maximum(limit - window, 0)
    treed = False
    for index, span in enumerate(spans):
        if isinstance(span, TreeSpan):
            treed = True
            part = slice(begins[index], begins[index] + span.rows)
            limit[part], base[part] = span.start + span.rows, span.start
            for row, ancestors in enumerate(_checked(span), start=part.start):
                depth = ancestors.bit_count()
                low[row] = 0 if window is None else max(0, min(span.start, span.start + depth - window))
                bits[row] = np.uint64(_latest(ancestors, window)).view(np.int64)
    return RowMasks(limit, low, bits, base, bool((counts > 1).any()), bool(low.any()), treed)


def _checked(span: TreeSpan) -> tuple[int, ...]:
    nodes = span.ancestors
    if len(nodes) != span.rows or span.rows > 64:
        raise ValueError(f"a draft tree of {span.rows} rows has {len(nodes)} masks; at most 64 rows")
    return nodes


def _latest(ancestors: int, window: int | None) -> int:
    """The bits of the last `window` nodes of a path: parents come before their children."""
    while window is not None and ancestors.bit_count() > window:
        ancestors &= ancestors - 1
    return ancestors


class Run(NamedTuple):
    """Rows `first <= r < first + rows` of the sorted rows against the entries of `pages` from `page` on,
    which are table entries from `lower` on, up to the absolute position `end`, in items of class `kind`."""

    first: int
    rows: int
    page: int
    lower: int
    end: int
    kind: int


@dataclass(slots=True)
class Runs:
    """`rows` int64: packed rows, sorted by table. `leaf` holds for each span of one row its index in `runs`,
    in the order of the spans; -1 for spans of more rows."""

    rows: np.ndarray
    runs: list[Run] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    leaf: list[int] = field(default_factory=list)


@lru_cache(maxsize=512)
def tiles(rows: int, shape: Tiling) -> tuple[tuple[int, int, int], ...]:
    """Tiles (first row, rows, class) of `rows` rows: wide ones while more are left than a narrow one holds,
    for a second tile would read the keys again."""
    found: list[tuple[int, int, int]] = []
    first = 0
    while first < rows:
        left = rows - first
        kind = WIDE if shape.wide and left > shape.narrow else NARROW
        size = min(left, shape.rows(kind))
        found.append((first, size, kind))
        first += size
    return tuple(found)


class RunFinder:
    """Finds the runs of steps over one pool of blocks of `block_size` positions.

    Nodes end at multiples of `unit` blocks. `room` entries are left free behind the blocks of a span of one
    row.
    """

    def __init__(self, block_size: int, unit: int, shape: Tiling, room: int) -> None:
        self._block_size = block_size
        self._unit = unit
        self._shape = shape
        self._room = room

    def find(self, spans: Sequence[RowSpan], masks: RowMasks, *, share: bool) -> Runs:
        """The runs of all rows; with `share` rows read common blocks together."""
        order = sorted(range(len(spans)), key=lambda index: spans[index].blocks)
        ordered = [spans[index] for index in order]
        first = [0, *accumulate(span.rows for span in ordered)]
        begins = [0, *accumulate(span.rows for span in spans)]
        parts = [range(begins[index], begins[index + 1]) for index in order]
        found = Runs(np.fromiter((row for part in parts for row in part), np.int64, first[-1]))
        depths = [0] * len(ordered)
        if share and len(ordered) > 1:
            self._share(ordered, first, depths, found)
        found.leaf = [-1] * len(spans)
        for index, span in enumerate(ordered):
            if span.rows == 1:
                found.leaf[order[index]] = len(found.runs)
            self._add_own(found, span, first[index], depths[index], masks, begins[order[index]])
        return found

    def _share(
        self, ordered: Sequence[RowSpan], first: Sequence[int], depths: list[int], found: Runs
    ) -> None:
        """Walk the tree of common leading blocks; a node too short to pay is left to the runs below it."""
        common = [self._common(left, right) for left, right in pairwise(ordered)]
        apart = [0, *accumulate(len(tiles(span.rows, self._shape)) for span in ordered)]
        pending = [(0, len(ordered), 0)]
        while pending:
            begin, stop, depth = pending.pop()
            if stop - begin < 2:
                if stop > begin:
                    depths[begin] = depth
                continue
            inner = common[begin : stop - 1]
            upper = min(inner)
            rows = first[stop] - first[begin]
            saved = apart[stop] - apart[begin] - len(tiles(rows, self._shape))
            if (upper - depth) * self._block_size * saved > _SHARING_COST * self._shape.group * rows:
                self._add_shared(found, ordered[begin], first[begin], rows, depth, upper)
                depth = upper
            cut = begin
            for index, length in enumerate(inner, start=begin):
                if length == upper:
                    pending.append((cut, index + 1, depth))
                    cut = index + 1
            pending.append((cut, stop, depth))

    def _common(self, left: RowSpan, right: RowSpan) -> int:
        """Whole units of leading blocks that both have and that lie before the rows of both."""
        limit = min(left.start, right.start) // self._block_size // self._unit * self._unit
        return shared_blocks(left.blocks, right.blocks, limit) // self._unit * self._unit if limit else 0

    def _add_shared(self, found: Runs, span: RowSpan, first: int, rows: int, lower: int, upper: int) -> None:
        page = len(found.pages)
        found.pages.extend(span.blocks[lower:upper])
        end = upper * self._block_size
        for offset, count, kind in tiles(rows, self._shape):
            found.runs.append(Run(first + offset, count, page, lower, end, kind))

    def _add_own(
        self, found: Runs, span: RowSpan, first: int, depth: int, masks: RowMasks, packed: int
    ) -> None:
        """Runs of a span against its own blocks, from entry `depth` or the first that its window reaches."""
        size, page = self._block_size, len(found.pages)
        lowest = self._lower(depth, masks, packed, span.rows)
        if span.rows == 1:
            end = span.start + 1
            found.runs.append(Run(first, 1, page, lowest, end, NARROW))
        else:
            for offset, count, kind in tiles(span.rows, self._shape):
                row = packed + offset
                lower = self._lower(depth, masks, row, count)
                end = int(masks.limit[row + count - 1])
                found.runs.append(Run(first + offset, count, page + lower - lowest, lower, end, kind))
            end = span.start + span.rows
        found.pages.extend(span.blocks[lowest : -(-end // size)])
        if span.rows == 1:
            found.pages.extend([0] * self._room)

    def _lower(self, depth: int, masks: RowMasks, row: int, count: int) -> int:
        """The first entry that `count` rows from packed row `row` on look at."""
        if not masks.windowed:
            return depth
        lowest = int(masks.low[row : row + count].min())
        return max(depth, lowest // self._block_size // self._unit * self._unit)
