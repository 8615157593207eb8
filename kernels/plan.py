"""The host-side plan of one attention step: ragged rows over paged KV, cut into work items.

Two kinds of items cover everything. A *row item* is one decoding row against one run of at most `key_chunk`
keys; all row items run as batched products of one shape. A *tile* is several consecutive rows against one run
of keys, as one product per KV head: rows of siblings that share leading blocks read those blocks once, and a
prefill chunk attends in tiles with a causal mask. Items of one row are merged by log-sum-exp.

With `fixed` (deterministic mode) there are only row items, cut at absolute multiples of `key_chunk`: every
product then has one shape, and a row's result depends on its own position and keys alone. No torch here
except index tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ROWS_PER_TILE = 64
KEYS_PER_TILE = 1024
ITEMS_PER_SLAB = 1024
_SHARING_PAYS = 48
"""Keys that sharing must save, over all rows of a group, before its extra products pay for themselves."""


class RowSpan(NamedTuple):
    """Rows at positions `start <= p < start + rows` of one sequence, whose KV lies in `blocks` (its block
    table)."""

    start: int
    rows: int
    blocks: tuple[int, ...]


class Level(NamedTuple):
    """Items `first <= i < last` of a slab: at most one per row. `rows` are theirs, counted from the slab's
    start; `scattered` holds them where they are not consecutive."""

    rows: slice
    scattered: Tensor | None
    first: int
    last: int


@dataclass(slots=True)
class RowSlab:
    """Row items of the packed rows `rows`, ordered by level: first every row's first run of keys, then the
    second ones.

    `blocks` int64 [items, key_chunk / block_size]; `item_rows` int64 [items], counted from the slab's start;
    `mask` fp32 [items, key_chunk]: 0 where the row may look, else -inf.
    """

    rows: slice
    blocks: Tensor
    item_rows: Tensor
    levels: list[Level]
    mask: Tensor


@dataclass(slots=True)
class Tile:
    """Packed rows `rows` against the keys of `blocks` int64 [blocks]; `mask` fp32 [rows, keys] or None where
    all are seen."""

    rows: slice
    blocks: Tensor
    mask: Tensor | None


@dataclass(slots=True)
class AttentionPlan:
    """All items of a step. `order` lists the spans in packing order; rows of a span stay consecutive."""

    order: list[int]
    rows: int
    slabs: list[RowSlab] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)


class Group(NamedTuple):
    """Spans `first <= s < last` of the sorted order share the table entries `lower <= b < upper`."""

    first: int
    last: int
    lower: int
    upper: int


class _TableMatrix:
    """Block tables as rows of one matrix. A row is written again only when its table is another object."""

    def __init__(self) -> None:
        self._tables: list[tuple[int, ...]] = []
        self._matrix = np.empty((0, 0), dtype=np.int64)

    def fill(self, tables: Sequence[tuple[int, ...]], spare: int) -> np.ndarray:
        """One row per table, followed by at least `spare` entries more.

        Those entries are masked wherever they are read; they name the table's own last block, whose content
        is finite.
        """
        width = max(len(table) for table in tables) + spare
        if len(tables) > self._matrix.shape[0] or width > self._matrix.shape[1]:
            shape = max(len(tables), self._matrix.shape[0]), max(width, 2 * self._matrix.shape[1])
            self._matrix = np.empty(shape, dtype=np.int64)
            self._tables = []
        for index, table in enumerate(tables):
            if index < len(self._tables) and table is self._tables[index]:
                continue
            self._matrix[index, : len(table)] = table
            self._matrix[index, len(table) :] = table[-1]
        self._tables[: len(tables)] = tables
        return self._matrix


class Planner:
    """Builds plans for one model's pool.

    `block_size` positions per KV block; `key_chunk` keys per row item, a multiple of it; `window` is the
    sliding window in positions (a row at p sees the keys `p - window < k <= p`), None for full attention.
    """

    def __init__(self, block_size: int, key_chunk: int, *, fixed: bool, window: int | None = None) -> None:
        if key_chunk % block_size:
            raise ValueError(f"key_chunk {key_chunk} is not a multiple of the block size {block_size}")
        self._block_size = block_size
        self._chunk_blocks = key_chunk // block_size
        self._fixed = fixed
        self._window = window
        self._tables: tuple[tuple[int, ...], ...] = ()
        self._shape: tuple[bool, list[tuple[int, int]]] = (False, [])
        self._groups: tuple[list[int], list[int], list[Group]] = ([], [], [])
        self._matrix = _TableMatrix()

    def plan(self, spans: Sequence[RowSpan]) -> AttentionPlan:
        """The items of a step over `spans` (each with at least one row)."""
        order, depths, groups = self._grouped(spans)
        plan = AttentionPlan(order, sum(span.rows for span in spans))
        ordered = [spans[index] for index in order]
        singles = len(ordered) if self._fixed else sum(span.rows == 1 for span in ordered)
        self._add_slabs(plan, ordered[:singles], depths)
        first_row = np.cumsum([0, *(span.rows for span in ordered)])
        for group in groups:
            rows = slice(int(first_row[group.first]), int(first_row[group.last]))
            self._add_tiles(plan, rows, ordered[group.first].blocks[group.lower : group.upper])
        for index in range(singles, len(ordered)):
            self._add_causal_tiles(plan, int(first_row[index]), ordered[index], depths[index])
        return plan

    def _grouped(self, spans: Sequence[RowSpan]) -> tuple[list[int], list[int], list[Group]]:
        """Packing order, first own block per ordered span, and groups; kept while the block tables are the
        same objects."""
        if self._fixed:
            order = sorted(range(len(spans)), key=lambda index: -(spans[index].start + spans[index].rows))
            return order, [0] * len(spans), []
        shape = (self._reaches_window(spans), [(span.rows, self._full_blocks(span)) for span in spans])
        same = len(spans) == len(self._tables) and all(
            span.blocks is table for span, table in zip(spans, self._tables, strict=True)
        )
        if not (same and shape == self._shape):
            self._tables = tuple(span.blocks for span in spans)
            self._shape = shape
            self._groups = self._group(spans)
        return self._groups

    def _group(self, spans: Sequence[RowSpan]) -> tuple[list[int], list[int], list[Group]]:
        order = sorted(range(len(spans)), key=lambda index: (spans[index].rows > 1, spans[index].blocks))
        ordered = [spans[index] for index in order]
        singles = sum(span.rows == 1 for span in ordered)
        depths = [0] * len(ordered)
        groups: list[Group] = []
        if not self._reaches_window(spans):
            shared = [self._shared_blocks(a, b) for a, b in pairwise(ordered)]
            for first, last in ((0, singles), (singles, len(ordered))):
                self._split(ordered, shared, depths, groups, first, last)
        return order, depths, groups

    def _split(
        self,
        spans: Sequence[RowSpan],
        shared: Sequence[int],
        depths: list[int],
        groups: list[Group],
        first: int,
        last: int,
    ) -> None:
        """Walk the tree of common leading blocks; a run too short to pay is left to the runs below it."""
        pending = [(first, last, 0)]
        while pending:
            first, last, depth = pending.pop()
            if last - first < 2:
                if last > first:
                    depths[first] = depth
                continue
            common = min(shared[first : last - 1])
            saved = (last - first - 1) * (common - depth) * self._block_size
            if saved >= _SHARING_PAYS:
                groups.append(Group(first, last, depth, common))
                depth = common
            cut = first
            for index in range(first, last - 1):
                if shared[index] == common:
                    pending.append((cut, index + 1, depth))
                    cut = index + 1
            pending.append((cut, last, depth))

    def _full_blocks(self, span: RowSpan) -> int:
        """Blocks that lie wholly before the span's first row: what it can share without a mask."""
        return span.start // self._block_size

    def _shared_blocks(self, left: RowSpan, right: RowSpan) -> int:
        upper = min(self._full_blocks(left), self._full_blocks(right))
        a, b = left.blocks, right.blocks
        if a[:upper] == b[:upper]:
            return upper
        lower = 0
        while upper - lower > 1:
            middle = (lower + upper) // 2
            if a[lower:middle] == b[lower:middle]:
                lower = middle
            else:
                upper = middle
        return lower

    def _reaches_window(self, spans: Sequence[RowSpan]) -> bool:
        return self._window is not None and any(span.start + span.rows > self._window for span in spans)

    def _add_slabs(self, plan: AttentionPlan, spans: Sequence[RowSpan], depths: Sequence[int]) -> None:
        if not spans:
            return
        tables = self._matrix.fill([span.blocks for span in spans], self._chunk_blocks)
        counts = np.fromiter((span.rows for span in spans), np.int64, len(spans))
        starts = np.fromiter((span.start for span in spans), np.int64, len(spans))
        span_of_row = np.repeat(np.arange(len(spans)), counts)
        row_in_span = np.arange(len(span_of_row)) - np.repeat(np.cumsum(counts) - counts, counts)
        position = starts[span_of_row] + row_in_span
        lower = np.asarray(depths[: len(spans)], dtype=np.int64)[span_of_row] * self._block_size
        chunk = self._chunk_blocks * self._block_size
        if self._window is not None:
            visible = np.maximum(position - self._window + 1, 0)
            lower = np.maximum(
                lower,
                visible // chunk * chunk if self._fixed else visible // self._block_size * self._block_size,
            )
        items = (position - lower) // chunk + 1
        first = 0
        while first < len(items):
            last = first + max(
                1, int(np.searchsorted(np.cumsum(items[first:]), ITEMS_PER_SLAB, side="right"))
            )
            part = slice(first, last)
            plan.slabs.append(
                self._slab(part, tables, span_of_row[part], position[part], lower[part], items[part])
            )
            first = last

    def _slab(
        self,
        rows: slice,
        tables: np.ndarray,
        span_of_row: np.ndarray,
        position: np.ndarray,
        lower: np.ndarray,
        items: np.ndarray,
    ) -> RowSlab:
        levels: list[Level] = []
        members, levels_of = [], []
        first = 0
        for level in range(int(items.max())):
            index = np.flatnonzero(items > level)
            consecutive = int(index[-1]) - int(index[0]) + 1 == len(index)
            where = slice(int(index[0]), int(index[-1]) + 1)
            last = first + len(index)
            levels.append(Level(where, None if consecutive else torch.from_numpy(index), first, last))
            members.append(index)
            levels_of.append(np.full(len(index), level))
            first = last
        item_rows = np.concatenate(members)
        chunk = self._chunk_blocks * self._block_size
        key = lower[item_rows] + np.concatenate(levels_of) * chunk
        entry = (key // self._block_size)[:, None] + np.arange(self._chunk_blocks)
        blocks = tables[span_of_row[item_rows][:, None], entry]
        mask = self._mask(position[item_rows], key, chunk)
        return RowSlab(rows, torch.from_numpy(blocks), torch.from_numpy(item_rows), levels, mask)

    def _mask(self, position: np.ndarray, first_key: np.ndarray, keys: int) -> Tensor:
        """Additive mask fp32 [rows, keys]: keys `first_key + i` that lie after `position`, or out of its
        window, are -inf."""
        distance = (position - first_key)[:, None] - np.arange(keys)
        hidden = distance < 0
        if self._window is not None:
            hidden |= distance >= self._window
        return torch.from_numpy(np.where(hidden, np.float32("-inf"), np.float32(0)))

    def _add_tiles(self, plan: AttentionPlan, rows: slice, blocks: Sequence[int]) -> None:
        """Tiles of rows that all see every key of `blocks`."""
        table = torch.tensor(blocks, dtype=torch.int64)
        step = KEYS_PER_TILE // self._block_size
        for first in range(rows.start, rows.stop, ROWS_PER_TILE):
            part = slice(first, min(first + ROWS_PER_TILE, rows.stop))
            plan.tiles.extend(Tile(part, run, None) for run in table.split(step))

    def _add_causal_tiles(self, plan: AttentionPlan, first_row: int, span: RowSpan, depth: int) -> None:
        """Tiles of a span of several rows against its own blocks from entry `depth` on."""
        table = torch.tensor(span.blocks, dtype=torch.int64)
        step = KEYS_PER_TILE // self._block_size
        for offset in range(0, span.rows, ROWS_PER_TILE):
            count = min(ROWS_PER_TILE, span.rows - offset)
            position = span.start + offset + np.arange(count)
            begin = depth
            if self._window is not None:
                begin = max(begin, max(0, int(position[0]) - self._window + 1) // self._block_size)
            end = int(position[-1]) // self._block_size + 1
            rows = slice(first_row + offset, first_row + offset + count)
            lower = begin
            while lower < end:
                # The last run begins at or before the first row's own key, so that every row sees some key of
                # it.
                diagonal = int(position[0]) // self._block_size
                upper = end if end - lower <= step or lower >= diagonal else min(lower + step, diagonal)
                keys = (upper - lower) * self._block_size
                mask = self._mask(position, np.full(count, lower * self._block_size), keys)
                plan.tiles.append(Tile(rows, table[lower:upper], mask if bool(mask.any()) else None))
                lower = upper
