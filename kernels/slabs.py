"""The plan of the torch attention on a CPU: ragged rows over paged KV, cut into slabs and tiles.

Two kinds of items cover everything. A *row item* is one decoding row against one run of at most `key_chunk`
keys; all row items run as batched products of one shape. A *tile* is several consecutive rows against one run
of keys, as one product per KV head: rows of siblings that share leading blocks read those blocks once, and a
prefill chunk attends in tiles with a causal mask. Items of one row are merged by log-sum-exp.

No torch here except index tensors and masks. The deterministic mode has a plan of its own, `fixed_plan`; the
plan of the work items of a GPU is `plan`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .tables import Level, RowSpan, TableMatrix, key_mask, leveled, shared_blocks

ROWS_PER_TILE = 64
KEYS_PER_TILE = 1024
_SHARING_PAYS = 48
"""Keys that sharing must save, over all rows of a group, before its extra products pay for themselves."""


@dataclass(slots=True)
class RowLayout:
    """Row items of the packed rows `rows`, ordered by level: first every row's first run of keys, then the
    second.

    `blocks` int64 [items, key_chunk / block_size]; `item_rows` int64 [items], counted from the first row, as
    the levels' rows are. `gather` is filled in by the kernel and lives as long as the layout.
    """

    rows: slice
    blocks: Tensor
    item_rows: Tensor
    first_key: np.ndarray
    levels: list[Level]
    gather: Tensor | None = None


@dataclass(slots=True)
class RowSlab:
    """A layout for one step: `mask` fp32 [items, key_chunk] is 0 where the row may look, else -inf."""

    layout: RowLayout
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


class _Grouping(NamedTuple):
    """Packing order, the first table entry of its own per ordered span, and the shared runs."""

    order: list[int]
    depths: np.ndarray
    groups: list[Group]


class Planner:
    """Builds plans for one model's pool.

    `block_size` positions per KV block; `key_chunk` keys per row item, a multiple of it; `window` is the
    sliding window in positions (a row at p sees the keys `p - window < k <= p`), None for full attention.
    `items_per_slab` bounds the row items whose KV is gathered at once, though a row is never split.
    """

    def __init__(
        self, block_size: int, key_chunk: int, *, window: int | None = None, items_per_slab: int = 1024
    ) -> None:
        if key_chunk % block_size:
            raise ValueError(f"key_chunk {key_chunk} is not a multiple of the block size {block_size}")
        self._block_size = block_size
        self._chunk_blocks = key_chunk // block_size
        self._window = window
        self._items_per_slab = items_per_slab
        self._tables: tuple[tuple[int, ...], ...] = ()
        self._shape: tuple[bool, list[tuple[int, int]]] = (False, [])
        self._grouping = _Grouping([], np.empty(0, np.int64), [])
        self._matrix = TableMatrix()
        self._layouts: list[RowLayout] = []
        self._layouts_of: tuple[int, list[int], list[int]] | None = None

    def plan(self, spans: Sequence[RowSpan]) -> AttentionPlan:
        """The items of a step over `spans` (each with at least one row)."""
        order, depths, groups = self._grouped(spans)
        plan = AttentionPlan(order, sum(span.rows for span in spans))
        ordered = [spans[index] for index in order]
        singles = sum(span.rows == 1 for span in ordered)
        if singles:
            plan.slabs = self._slabs(ordered[:singles], depths[:singles])
        first_row = np.cumsum([0, *(span.rows for span in ordered)]).tolist()
        for group in groups:
            rows = slice(first_row[group.first], first_row[group.last])
            self._add_tiles(plan, rows, ordered[group.first].blocks[group.lower : group.upper])
        for index in range(singles, len(ordered)):
            self._add_causal_tiles(plan, first_row[index], ordered[index], int(depths[index]))
        return plan

    def _grouped(self, spans: Sequence[RowSpan]) -> _Grouping:
        """The grouping; kept while the block tables are the same objects."""
        shape = (self._reaches_window(spans), [(span.rows, self._full_blocks(span)) for span in spans])
        same = len(spans) == len(self._tables) and all(
            span.blocks is table for span, table in zip(spans, self._tables, strict=True)
        )
        if not (same and shape == self._shape):
            self._tables = tuple(span.blocks for span in spans)
            self._shape = shape
            self._grouping = self._group(spans)
        return self._grouping

    def _group(self, spans: Sequence[RowSpan]) -> _Grouping:
        order = sorted(range(len(spans)), key=lambda index: (spans[index].rows > 1, spans[index].blocks))
        ordered = [spans[index] for index in order]
        singles = sum(span.rows == 1 for span in ordered)
        depths = [0] * len(ordered)
        groups: list[Group] = []
        if not self._reaches_window(spans):
            shared = [self._shared(left, right) for left, right in pairwise(ordered)]
            for first, last in ((0, singles), (singles, len(ordered))):
                self._split(shared, depths, groups, first, last)
        return _Grouping(order, np.asarray(depths, dtype=np.int64), groups)

    def _split(
        self, shared: Sequence[int], depths: list[int], groups: list[Group], first: int, last: int
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

    def _shared(self, left: RowSpan, right: RowSpan) -> int:
        limit = min(self._full_blocks(left), self._full_blocks(right))
        return shared_blocks(left.blocks, right.blocks, limit)

    def _reaches_window(self, spans: Sequence[RowSpan]) -> bool:
        return self._window is not None and any(span.start + span.rows > self._window for span in spans)

    def _slabs(self, spans: Sequence[RowSpan], depths: np.ndarray) -> list[RowSlab]:
        """Items of spans of one row each, from their own first block on."""
        tables = self._matrix.fill([span.blocks for span in spans], self._chunk_blocks)
        position = np.fromiter((span.start for span in spans), np.int64, len(spans))
        lower = depths
        if self._window is not None:
            lower = np.maximum(lower, np.maximum(position - self._window + 1, 0) // self._block_size)
        chunk = self._chunk_blocks * self._block_size
        items = (position - lower * self._block_size) // chunk + 1
        made_of = (self._matrix.version, lower.tolist(), items.tolist())
        if made_of != self._layouts_of:
            self._layouts_of = made_of
            self._layouts = self._make_layouts(tables, lower, items)
        return [self._slab(layout, position, chunk) for layout in self._layouts]

    def _slab(self, layout: RowLayout, position: np.ndarray, keys: int) -> RowSlab:
        rows = layout.item_rows.numpy() + layout.rows.start
        return RowSlab(layout, key_mask(position[rows], layout.first_key, keys, self._window))

    def _make_layouts(self, tables: np.ndarray, lower: np.ndarray, items: np.ndarray) -> list[RowLayout]:
        layouts: list[RowLayout] = []
        first = 0
        while first < len(items):
            fitting = int(np.searchsorted(np.cumsum(items[first:]), self._items_per_slab, side="right"))
            rows = slice(first, first + max(1, fitting))
            members = leveled(np.zeros(len(items[rows]), np.int64), items[rows])
            entry = lower[rows][members.rows] + members.level * self._chunk_blocks
            blocks = tables[(members.rows + first)[:, None], entry[:, None] + np.arange(self._chunk_blocks)]
            layouts.append(
                RowLayout(
                    rows=rows,
                    blocks=torch.from_numpy(blocks),
                    item_rows=torch.from_numpy(members.rows),
                    first_key=entry * self._block_size,
                    levels=members.levels,
                )
            )
            first = rows.stop
        return layouts

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
            lower = depth
            if self._window is not None:
                lower = max(lower, max(0, int(position[0]) - self._window + 1) // self._block_size)
            end = int(position[-1]) // self._block_size + 1
            rows = slice(first_row + offset, first_row + offset + count)
            while lower < end:
                # The last run begins at or before the first row's own key, so that every row sees some key of
                # it.
                diagonal = int(position[0]) // self._block_size
                upper = end if end - lower <= step or lower >= diagonal else min(lower + step, diagonal)
                keys = (upper - lower) * self._block_size
                first_key = np.full(count, lower * self._block_size)
                mask = key_mask(position, first_key, keys, self._window)
                plan.tiles.append(Tile(rows, table[lower:upper], mask if bool(mask.any()) else None))
                lower = upper
