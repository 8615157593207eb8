"""The plan of a step's attention as work items, for kernels that read it from memory.

The runs of keys (`runs`) are cut into items: into enough for the programs that a device runs at once, while
the partial results stay a small part of the bytes of the KV. In the deterministic mode they are cut at
absolute multiples of a chunk instead, and nodes end there too: a row then has the same items alone, unshared
or shared, and so the same bits.

While every row moves on by one position, the plan of the last step is advanced in place.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .runs import RowMasks, RunFinder, Runs, row_masks
from .tables import RowSpan, TreeSpan
from .work import (
    FIRST_KEY,
    FIRST_PAGE,
    FIRST_SLOT,
    KEYS,
    SLOTS,
    WIDE,
    Capacity,
    WorkArrays,
    WorkPlan,
    memory_words,
    tiling,
)

_ITEMS_PER_PROGRAM = 2
"""Items that a program meets on average: later ones, which are shorter, fill what earlier ones leave."""
_PARTIALS_SHARE = 0.1
"""Bytes of partial results, as a share of the KV bytes (bf16), from which on runs are cut less."""
_FAIR_SHARES = 4
"""The longest item in a program's share of all keys: what one program reads alone, the others wait for."""
_ROOM_KEYS = 256
"""Keys by which a row may grow before its plan is made anew."""
_SLACK_KEYS = 64
"""Keys before a row's window that its item may still read."""


def capacity_for(
    rows: int,
    spans: int,
    table_blocks: int,
    block_size: int,
    *,
    chunk: int | None = None,
    slots_per_row: int = 8,
) -> Capacity:
    """The capacity for steps of up to `rows` rows of `spans` sequences, whose tables have up to
    `table_blocks` blocks.

    `slots_per_row` bounds the cuts on average, and with them the memory of partial results; any step fits.
    In the deterministic mode the cuts follow from `chunk`.
    """
    if chunk is not None:
        slots_per_row = -(-table_blocks * block_size // chunk)
    slots = rows * slots_per_row
    pages = spans * (table_blocks + -(-(chunk or _ROOM_KEYS) // block_size))
    return Capacity(rows=rows, slots=slots, items=slots, pages=pages)


class _Cut(NamedTuple):
    """Items, narrow ones first and by falling keys: int64 [items] each, `first_row` counted in the sorted
    rows; `wide` are the last of them. `first_piece` and `last_piece` int64 [runs] are items."""

    first_row: np.ndarray
    rows: np.ndarray
    page: np.ndarray
    keys: np.ndarray
    first_key: np.ndarray
    wide: int
    first_piece: np.ndarray
    last_piece: np.ndarray


class _Moving(NamedTuple):
    """What advances with each step: per row its last item and its first one of its own (both narrow), and
    the entries of `pages` that the last one has. It may have `longest` keys; `windowed` says whether the
    window of a row has been reached."""

    item: np.ndarray
    first: np.ndarray
    entries: np.ndarray
    longest: int
    windowed: bool


class WorkPlanner:
    """Plans steps over one model's pool into arrays of a fixed capacity.

    `block_size` positions per KV block; `group` query heads for each of `kv_heads`; `programs` that the
    device runs at once, over all KV heads; `window` is the sliding window in positions, None for full
    attention. `chunk` keys (a multiple of the block size) switch the deterministic mode on, which has no
    wide items: their products may round otherwise. `memory` int32 [`memory_words(capacity)`] takes the
    arrays; without it there is memory of its own.

    `rebuilds` and `updates` count the plans made anew and those advanced.
    """

    def __init__(
        self,
        block_size: int,
        group: int,
        kv_heads: int,
        *,
        capacity: Capacity,
        programs: int = 1,
        window: int | None = None,
        chunk: int | None = None,
        memory: np.ndarray | None = None,
    ) -> None:
        if chunk is not None and (chunk <= 0 or chunk % block_size):
            raise ValueError(f"chunk {chunk} is not a multiple of the block size {block_size}")
        words = memory_words(capacity)
        if memory is not None and (memory.dtype != np.int32 or memory.shape != (words,)):
            raise ValueError(f"the plan's memory must be int32 [{words}]")
        self._block_size = block_size
        self._capacity = capacity
        self._window = window
        self._chunk_blocks = None if chunk is None else chunk // block_size
        self._programs = max(1, programs // kv_heads)
        self._tiling = tiling(group, wide=chunk is None)
        room = -(-_ROOM_KEYS // block_size) if self._chunk_blocks is None else self._chunk_blocks
        self._room = room
        self._finder = RunFinder(block_size, self._chunk_blocks or 1, self._tiling, room)
        self._arrays = WorkArrays(capacity, memory)
        self._spans: Sequence[RowSpan] = ()
        self._plan: WorkPlan | None = None
        self._moving: _Moving | None = None
        self.rebuilds = 0
        self.updates = 0

    def plan(self, spans: Sequence[RowSpan]) -> WorkPlan:
        """The work of a step over `spans` (each with at least one row), whose rows are packed in this order.

        Raises ValueError where the step exceeds the capacity even with its keys uncut.
        """
        if self._plan is not None and self._advance(spans):
            self.updates += 1
        else:
            self._moving = None
            self._plan = self._rebuild(spans)
            self.rebuilds += 1
        self._spans = tuple(spans)
        return self._plan

    def _rebuild(self, spans: Sequence[RowSpan]) -> WorkPlan:
        masks = row_masks(spans, self._window)
        # Rows whose windows have been reached see different keys: they read by themselves.
        found = self._finder.find(spans, masks, share=not masks.windowed)
        self._check("rows", len(masks.limit), self._capacity.rows)
        if self._chunk_blocks is None and sum(run.rows for run in found.runs) > self._capacity.slots:
            found = self._finder.find(spans, masks, share=False)
        self._check("pages", len(found.pages), self._capacity.pages)
        return self._fill(found, masks)

    def _check(self, what: str, needed: int, most: int) -> None:
        if needed > most:
            raise ValueError(f"a step needs {needed} {what}, and the plan's memory holds {most}")

    def _fill(self, found: Runs, masks: RowMasks) -> WorkPlan:
        """Cut the runs and write the arrays."""
        arrays, cut = self._arrays, self._cut(found)
        slots = int(cut.rows.sum())
        items = (len(cut.rows) - cut.wide, cut.wide)
        self._check("slots", slots, self._capacity.slots)
        self._check("items", max(items), self._capacity.items)
        first_slot = np.cumsum(cut.rows) - cut.rows
        self._fill_items(cut, first_slot, items)
        item = np.repeat(np.arange(len(cut.rows)), cut.rows)
        row_of_slot = found.rows[cut.first_row[item] + np.arange(slots) - first_slot[item]]
        self._fill_slots(row_of_slot, cut.first_key[item], cut.keys[item], masks)
        arrays.pages[: len(found.pages)] = found.pages
        arrays.pages[len(found.pages)] = 0
        if not masks.limited and not masks.treed:
            self._moving = self._start_moving(cut, np.array(found.leaf), masks.windowed)
        # One build of the kernel serves all steps of the deterministic mode: two builds may round otherwise.
        fixed = self._chunk_blocks is not None
        return WorkPlan(
            arrays,
            self._tiling,
            self._block_size,
            rows=len(masks.limit),
            slots=slots,
            items=items,
            pages=len(found.pages),
            limited=fixed or masks.limited,
            windowed=masks.windowed or (fixed and self._window is not None),
            treed=fixed or masks.treed,
        )

    def _cut(self, found: Runs) -> _Cut:
        """The runs in pieces, by falling cost: the last items to start are short."""
        size = self._block_size
        first_row, rows, page, lower, end, kind = np.array(found.runs, np.int64).T
        blocks = -(-end // size) - lower
        each = self._piece_blocks(blocks, rows)
        pieces = -(-blocks // each)
        after = np.cumsum(pieces)
        run = np.repeat(np.arange(len(rows)), pieces)
        skipped = (np.arange(len(run)) - (after - pieces)[run]) * each[run]
        first_key = (lower[run] + skipped) * size
        keys = np.minimum(each[run] * size, end[run] - first_key)
        order = np.lexsort((-keys, kind[run]))
        run, skipped = run[order], skipped[order]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return _Cut(
            first_row=first_row[run],
            rows=rows[run],
            page=page[run] + skipped,
            keys=keys[order],
            first_key=first_key[order],
            wide=int((kind[run] == WIDE).sum()),
            first_piece=place[after - pieces],
            last_piece=place[after - 1],
        )

    def _fill_items(self, cut: _Cut, first_slot: np.ndarray, items: tuple[int, int]) -> None:
        arrays, narrow = self._arrays, items[0]
        arrays.counts[:, 0] = items
        for kind, part in enumerate((slice(0, narrow), slice(narrow, sum(items)))):
            target = arrays.items[kind, :, : items[kind]]
            target[FIRST_SLOT], target[SLOTS] = first_slot[part], cut.rows[part]
            target[FIRST_PAGE] = cut.page[part]
            target[KEYS], target[FIRST_KEY] = cut.keys[part], cut.first_key[part]

    def _fill_slots(
        self, row_of_slot: np.ndarray, first_key: np.ndarray, keys: np.ndarray, masks: RowMasks
    ) -> None:
        """Per slot its row and masks, and per row the slots that see something, in the order of their keys.

        Others of its tile may look where a row does not: what it merges must not depend on them.
        """
        arrays, slots, rows = self._arrays, slice(0, len(row_of_slot)), len(masks.limit)
        limit, low = masks.limit[row_of_slot], masks.low[row_of_slot]
        arrays.row_of_slot[slots] = row_of_slot
        arrays.limit[slots], arrays.low[slots] = limit, low
        arrays.bits[slots] = masks.bits[row_of_slot]
        arrays.bit_base[slots] = masks.base[row_of_slot]
        order = np.argsort((row_of_slot << 32) + first_key)
        if masks.limited or masks.windowed:
            order = order[((limit > first_key) & (low < first_key + keys))[order]]
        arrays.row_slots[: len(order)] = order
        ends = np.cumsum(np.bincount(row_of_slot[order], minlength=rows))
        arrays.row_ptr[0] = 0
        arrays.row_ptr[1 : rows + 1] = ends
        arrays.row_ptr[rows + 1 :] = len(order)

    def _piece_blocks(self, blocks: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Blocks of the pieces that each run is cut into: short ones for balance, longer ones while their
        partial results are too many, but none of more than a few fair shares of the work."""
        if self._chunk_blocks is not None:
            return np.full_like(blocks, self._chunk_blocks)
        capacity, total = self._capacity, int(blocks.sum())
        budget = _PARTIALS_SHARE * total * self._block_size / (2 * self._tiling.group)
        piece = max(1, -(-total // (_ITEMS_PER_PROGRAM * self._programs)))
        while piece < int(blocks.max()):
            pieces = -(-blocks // piece)
            slots, items = int((rows * pieces).sum()), int(pieces.sum())
            enough = slots <= budget or piece * self._programs >= _FAIR_SHARES * total
            if enough and slots <= capacity.slots and items <= capacity.items:
                break
            piece *= 2
        # Pieces of one run are of equal length but for the last.
        return -(-blocks // -(-blocks // piece))

    def _start_moving(self, cut: _Cut, leaf: np.ndarray, windowed: bool) -> _Moving:
        item = cut.last_piece[leaf]
        blocks = -(-cut.keys[item] // self._block_size)
        if self._chunk_blocks is None:
            longest = 2 * int(cut.keys.max()) + _ROOM_KEYS
        else:
            longest = self._chunk_blocks * self._block_size
        return _Moving(item, cut.first_piece[leaf], blocks + self._room, longest, windowed)

    def _advance(self, spans: Sequence[RowSpan]) -> bool:
        """Move the last plan one position on, where these are its rows there and it has the room."""
        moving, plan = self._moving, self._plan
        if moving is None or plan is None or len(spans) != len(self._spans):
            return False
        for span, last in zip(spans, self._spans, strict=True):
            if span.start != last.start + 1 or span.rows != 1 or not _continues(span, last):
                return False
        keys, page = self._arrays.items[0, KEYS], self._arrays.items[0, FIRST_PAGE]
        grown = keys[moving.item] + 1
        entry = (grown - 1) // self._block_size
        if int(grown.max()) > moving.longest or bool((entry >= moving.entries).any()):
            return False
        if self._window is not None and not self._advance_window(moving, plan, self._window):
            return False
        keys[moving.item] = grown
        self._arrays.limit[: plan.slots] += 1
        for row in np.flatnonzero((grown - 1) % self._block_size == 0).tolist():
            block = spans[row].blocks[spans[row].start // self._block_size]
            self._arrays.pages[page[moving.item[row]] + entry[row]] = block
        return True

    def _advance_window(self, moving: _Moving, plan: WorkPlan, window: int) -> bool:
        """Move the windows on, unless one is reached for the first time or too much lies before one."""
        limit = self._arrays.limit[: plan.slots]
        low = np.maximum(limit + 1 - window, 0)
        if not moving.windowed:
            return not bool(low.any())
        first_key = self._arrays.items[0, FIRST_KEY][moving.first]
        slot = self._arrays.row_slots[self._arrays.row_ptr[: plan.rows]]
        # In the deterministic mode a row never has an item that it sees nothing of.
        slack = max(_SLACK_KEYS // self._block_size, 2) if self._chunk_blocks is None else self._chunk_blocks
        if bool((low[slot] - first_key >= slack * self._block_size).any()):
            return False
        self._arrays.low[: plan.slots] = low
        return True


def _continues(span: RowSpan, last: RowSpan) -> bool:
    """Whether `span` has the table of `last`, or that table with one block more."""
    if span.blocks is last.blocks:
        return not isinstance(span, TreeSpan)
    known = len(last.blocks)
    longer = len(span.blocks) - known
    return 0 <= longer <= 1 and span.blocks[:known] == last.blocks and not isinstance(span, TreeSpan)
