"""The plan of the deterministic mode: attention cut at absolute positions into items of fixed shapes.

Keys are cut at multiples of `key_chunk`. A row meets each chunk either alone (*row item*) or in a tile of
`TILE_ROWS` rows that share the chunk's blocks and see all of it (*tile item*): siblings behind a common
prefix, or the rows of one prefill. Both give the row the same bits (see `fixed_attention`), and a row's
chunks are added up in the order of their positions. So its result depends on its own position and keys alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .tables import RowSpan, TableMatrix, key_mask, leveled, shared_blocks

TILE_ROWS = 16
_ROWS_TO_SHARE = 4
"""A tile of fewer rows costs more than it saves: it computes `TILE_ROWS` in any case."""


@dataclass(slots=True)
class TileItems:
    """`rows` int64 [tiles, TILE_ROWS]: packed rows counted from the slab's first, repeated where a tile is
    not full. Item i is tile `tile[i]` against `blocks[i]`; of its rows, flattened over all items, those at
    `kept` are real and their results are the entries `entries`. All int64."""

    rows: Tensor
    tile: Tensor
    blocks: Tensor
    kept: Tensor
    entries: Tensor
    gather: Tensor | None = None


@dataclass(slots=True)
class RowItems:
    """Item i is row `rows[i]` against `blocks[i]`, whose first key is at `first_key[i]`; its result is entry
    `entries[i]`. int64."""

    rows: Tensor
    blocks: Tensor
    first_key: np.ndarray
    entries: Tensor
    gather: Tensor | None = None


@dataclass(slots=True)
class FixedSlab:
    """Items of the packed rows `rows`, counted from the slab's first. The result of row r with chunk c is
    entry `(c - first_chunk) * rows + r` of `chunks * rows`; `full` says that every row meets every chunk.
    `mask` fp32 [row items, key_chunk]."""

    rows: slice
    chunks: int
    full: bool
    shared: TileItems | None
    own: RowItems
    mask: Tensor


@dataclass(slots=True)
class FixedPlan:
    """All items of a step. `order` lists the spans in packing order; rows of a span stay consecutive."""

    order: list[int]
    rows: int
    slabs: list[FixedSlab]


class FixedPlanner:
    """Builds plans for one model's pool; arguments as for `Planner`. Without `share` there are no tile
    items."""

    def __init__(
        self,
        block_size: int,
        key_chunk: int,
        *,
        share: bool,
        window: int | None = None,
        items_per_slab: int = 1024,
    ) -> None:
        if key_chunk % block_size:
            raise ValueError(f"key_chunk {key_chunk} is not a multiple of the block size {block_size}")
        self._block_size = block_size
        self._chunk = key_chunk
        self._share = share
        self._window = window
        self._items_per_slab = items_per_slab
        self._matrix = TableMatrix()
        self._made_of: tuple[int, list[int]] | None = None
        self._slabs: list[FixedSlab] = []

    def plan(self, spans: Sequence[RowSpan]) -> FixedPlan:
        """The items of a step over `spans` (each with at least one row)."""
        order = sorted(range(len(spans)), key=lambda index: spans[index].blocks)
        ordered = [spans[index] for index in order]
        tables = self._matrix.fill([span.blocks for span in ordered], self._chunk // self._block_size)
        counts = np.fromiter((span.rows for span in ordered), np.int64, len(ordered))
        span_of_row = np.repeat(np.arange(len(ordered)), counts)
        begins = np.cumsum(counts) - counts
        starts = np.fromiter((span.start for span in ordered), np.int64, len(ordered))
        position = (starts - begins)[span_of_row] + np.arange(len(span_of_row))
        chunks = position // self._chunk
        # While every row stays in its chunk and every table is the same object, only the masks change.
        made_of = (self._matrix.version, counts.tolist() + chunks.tolist())
        if made_of != self._made_of or self._window is not None:
            self._slabs = self._make_slabs(ordered, tables, span_of_row, position)
            self._made_of = made_of
        for slab in self._slabs:
            rows = slab.own.rows.numpy() + slab.rows.start
            slab.mask = key_mask(position[rows], slab.own.first_key, self._chunk, self._window)
        return FixedPlan(order, len(position), self._slabs)

    def _make_slabs(
        self, spans: Sequence[RowSpan], tables: np.ndarray, span_of_row: np.ndarray, position: np.ndarray
    ) -> list[FixedSlab]:
        last = position // self._chunk
        first = np.zeros_like(last)
        if self._window is not None:
            first = np.maximum(position - self._window + 1, 0) // self._chunk
        tiles = self._tiles(spans, span_of_row, position)
        slabs: list[FixedSlab] = []
        pending: list[tuple[slice, int]] = []
        items = 0
        for rows, shared in tiles:
            size = shared + int((last[rows] - np.maximum(first[rows], shared) + 1).sum())
            if pending and items + size > self._items_per_slab:
                slabs.append(self._slab(pending, tables, span_of_row, first, last))
                pending, items = [], 0
            pending.append((rows, shared))
            items += size
        slabs.append(self._slab(pending, tables, span_of_row, first, last))
        return slabs

    def _tiles(
        self, spans: Sequence[RowSpan], span_of_row: np.ndarray, position: np.ndarray
    ) -> list[tuple[slice, int]]:
        """Consecutive rows cut into tiles, with the number of leading chunks that the rows of each share.

        A tile ends when it is full, or when one more row would lose more than it brings.
        """
        chunk_blocks = self._chunk // self._block_size
        tiles: list[tuple[slice, int]] = []
        begin, common = 0, self._visible(position[0])
        for row in range(1, len(position)):
            limit = min(common, self._visible(position[row]))
            left, right = spans[span_of_row[row - 1]].blocks, spans[span_of_row[row]].blocks
            if left is not right and limit:
                limit = shared_blocks(left, right, limit * chunk_blocks) // chunk_blocks
            size = row - begin
            if size == TILE_ROWS or limit * size < common * (size - 1):
                tiles.append(_tile(begin, row, common))
                begin, common = row, self._visible(position[row])
            else:
                common = limit
        tiles.append(_tile(begin, len(position), common))
        return tiles

    def _visible(self, position: int) -> int:
        """Leading chunks that a row at `position` sees whole: what it can share without a mask."""
        if not self._share or (self._window is not None and position >= self._window):
            return 0
        return int(position) // self._chunk

    def _slab(
        self,
        tiles: Sequence[tuple[slice, int]],
        tables: np.ndarray,
        span_of_row: np.ndarray,
        first: np.ndarray,
        last: np.ndarray,
    ) -> FixedSlab:
        rows = slice(tiles[0][0].start, tiles[-1][0].stop)
        shared_until = np.concatenate([np.full(tile.stop - tile.start, shared) for tile, shared in tiles])
        lowest, highest = int(first[rows].min()), int(last[rows].max())
        count = len(shared_until)
        own_from = np.maximum(first[rows], shared_until)
        own = leveled(own_from, last[rows] - own_from + 1)
        return FixedSlab(
            rows=rows,
            chunks=highest - lowest + 1,
            full=bool((first[rows] == lowest).all() and (last[rows] == highest).all()),
            shared=self._tile_items(tiles, rows.start, shared_until, tables, span_of_row),
            own=RowItems(
                rows=torch.from_numpy(own.rows),
                blocks=self._blocks(tables, span_of_row[rows][own.rows], own.level),
                first_key=own.level * self._chunk,
                entries=torch.from_numpy((own.level - lowest) * count + own.rows),
            ),
            mask=torch.empty(0),
        )

    def _tile_items(
        self,
        tiles: Sequence[tuple[slice, int]],
        base: int,
        shared_until: np.ndarray,
        tables: np.ndarray,
        span_of_row: np.ndarray,
    ) -> TileItems | None:
        members = [tile for tile, _ in tiles if shared_until[tile.start - base]]
        if not members:
            return None
        heads = np.array([tile.start - base for tile in members])
        sizes = np.array([tile.stop - tile.start for tile in members])
        within = np.arange(TILE_ROWS)
        rows = heads[:, None] + np.where(within < sizes[:, None], within, 0)
        items = leveled(np.zeros(len(members), np.int64), shared_until[heads])
        real = (within < sizes[items.rows][:, None]).reshape(-1)
        # Tiles share chunks from the first on only, so the slab's first chunk is 0 where there are any.
        entries = (items.level[:, None] * len(shared_until) + rows[items.rows]).reshape(-1)[real]
        return TileItems(
            rows=torch.from_numpy(rows),
            tile=torch.from_numpy(items.rows),
            blocks=self._blocks(tables, span_of_row[heads[items.rows] + base], items.level),
            kept=torch.from_numpy(np.flatnonzero(real)),
            entries=torch.from_numpy(entries),
        )

    def _blocks(self, tables: np.ndarray, span: np.ndarray, chunk: np.ndarray) -> Tensor:
        """Blocks of each (span, chunk), int64 [items, key_chunk / block_size]."""
        width = self._chunk // self._block_size
        return torch.from_numpy(tables[span[:, None], (chunk * width)[:, None] + np.arange(width)])


def _tile(first: int, last: int, shared: int) -> tuple[slice, int]:
    """Rows `first <= r < last` and the chunks that they read together: none where they are too few."""
    return slice(first, last), shared if last - first >= _ROWS_TO_SHARE else 0
