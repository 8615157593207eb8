"""The work of one attention step as arrays: items, their slots, and where they lie in one block of memory.

A *work item* is a tile of a few query rows against one run of KV blocks, for every KV head. Each of its rows
takes a *slot*, which holds the partial result. An item reads its rows, slots and blocks from arrays that
all items share, so a launch depends on the plan only through the content of this memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

PAGE_SIZES = (16, 32, 64, 128)
"""Block sizes that the attention kernels take."""

NARROW, WIDE = 0, 1
"""Classes of items: tiles of 16 and of 64 rows of a product."""

FIRST_SLOT, SLOTS, FIRST_PAGE, KEYS, FIRST_KEY = range(5)
"""What is held per item: its first slot, their number, its first entry of `pages`, the number of its keys,
and the absolute position of the first one (a multiple of the block size)."""

_ALIGNED_WORDS = 4
_ITEMS_STEP = 16
"""A stride that is a multiple of 16 is known as one to the compiler of a kernel."""
_PARTIAL_BYTES = 8
"""A value of a partial result is written and read once as fp32."""


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a step may hold: packed rows, slots, items of one class, and entries of `pages`."""

    rows: int
    slots: int
    items: int
    pages: int


class Tiling(NamedTuple):
    """Rows of the tiles for `group` query heads per KV head, which lie in a product as `padded` rows.

    `narrow` and `wide` are the query rows of an item of that class, 16 and 64 rows of a product unless
    `padded` is more; `wide` is 0 where there are none.
    """

    group: int
    padded: int
    narrow: int
    wide: int

    def rows(self, kind: int) -> int:
        """Query rows of an item of class `kind`."""
        return self.wide if kind == WIDE else self.narrow


def power_of_two(size: int) -> int:
    """The lowest power of two that is not below `size`."""
    return 1 << (size - 1).bit_length()


def tiling(group: int, *, wide: bool = True) -> Tiling:
    """The tiles of a model with `group` query heads per KV head."""
    padded = power_of_two(group)
    narrow = max(1, 16 // padded)
    many = max(1, 64 // padded)
    return Tiling(group, padded, narrow, many if wide and many > narrow else 0)


class Place(NamedTuple):
    """Where an array lies: its first 32-bit word, its shape, and the words of an element."""

    first: int
    shape: tuple[int, ...]
    words: int


def places(capacity: Capacity) -> dict[str, Place]:
    """The arrays of a plan in their order in memory, each on a multiple of 16 bytes. `pages` comes last:
    what lies before the end of its used part is all that a step needs."""
    slots = (capacity.slots,)
    shapes: list[tuple[str, tuple[int, ...], int]] = [
        ("counts", (2, _ALIGNED_WORDS), 1),
        ("items", (2, 5, -(-capacity.items // _ITEMS_STEP) * _ITEMS_STEP), 1),
        ("row_ptr", (capacity.rows + 1,), 1),
        ("bits", slots, 2),
        ("bit_base", slots, 1),
        ("row_of_slot", slots, 1),
        ("row_slots", slots, 1),
        ("limit", slots, 1),
        ("low", slots, 1),
        ("pages", (capacity.pages + 1,), 1),
    ]
    found: dict[str, Place] = {}
    first = 0
    for name, shape, words in shapes:
        found[name] = Place(first, shape, words)
        size = int(np.prod(shape)) * words
        first += -(-size // _ALIGNED_WORDS) * _ALIGNED_WORDS
    return found


def memory_words(capacity: Capacity) -> int:
    """32-bit words that the arrays take."""
    last = places(capacity)["pages"]
    return last.first + last.shape[0]


class WorkArrays:
    """Views of one memory int32 [`memory_words`], which stay for good.

    `counts` [2, 4]: the first of each are the items of a class; `items` [2, 5, capacity] as FIRST_SLOT to
    FIRST_KEY say. Row r adds up the slots `row_slots[row_ptr[r]:row_ptr[r + 1]]`, in the order of their keys;
    slot s is of row `row_of_slot[s]` and sees the keys `low[s] <= k < limit[s]` of its item. Of those at or
    behind `bit_base[s]` it sees only the ones whose bit, counted from there, is set in `bits` (int64); -1 has
    all set. `pages` holds block ids and is readable one entry past the last.
    """

    def __init__(self, capacity: Capacity, memory: np.ndarray | None = None) -> None:
        self.capacity = capacity
        self.memory = np.zeros(memory_words(capacity), np.int32) if memory is None else memory
        found = places(capacity)
        self.counts = self._view(found["counts"])
        self.items = self._view(found["items"])
        self.row_ptr = self._view(found["row_ptr"])
        self.bits = self._view(found["bits"])
        self.bit_base = self._view(found["bit_base"])
        self.row_of_slot = self._view(found["row_of_slot"])
        self.row_slots = self._view(found["row_slots"])
        self.limit = self._view(found["limit"])
        self.low = self._view(found["low"])
        self.pages = self._view(found["pages"])
        self._first_page = found["pages"].first

    def _view(self, place: Place) -> np.ndarray:
        size = int(np.prod(place.shape)) * place.words
        words = self.memory[place.first : place.first + size]
        return (words if place.words == 1 else words.view(np.int64)).reshape(place.shape)

    def used_words(self, pages: int) -> int:
        """Leading words of the memory that a plan with `pages` entries uses."""
        return self._first_page + pages + 1


@dataclass(slots=True)
class WorkPlan:
    """A step's work in `arrays`; valid until its planner plans again, which writes to the same arrays.

    `rows` packed rows, in the order of the spans; `items` per class; `limited`: some slot does not see all
    keys of its item for its `limit`, `windowed` for its `low`, `treed` for its `bits`: the other arrays
    need not be looked at.
    """

    arrays: WorkArrays
    tiling: Tiling
    block_size: int
    rows: int
    slots: int
    items: tuple[int, int]
    pages: int
    limited: bool
    windowed: bool
    treed: bool

    @property
    def flags(self) -> dict[str, bool]:
        """The masks that the kernel must apply, by the names of its arguments."""
        return {"limited": self.limited, "windowed": self.windowed, "treed": self.treed}

    def keys_read(self) -> int:
        """Positions whose keys and values are read, per KV head."""
        return sum(int(self.arrays.items[kind, KEYS, :count].sum()) for kind, count in enumerate(self.items))

    def bytes_moved(self, kv_heads: int, head_dim: int, itemsize: int) -> int:
        """Bytes of one layer: keys and values read, partial results written and read, queries read and
        results written, of elements of `itemsize` bytes."""
        heads = kv_heads * self.tiling.group
        keys = 2 * kv_heads * head_dim * itemsize * self.keys_read()
        partials = self.slots * heads * (head_dim + 1) * _PARTIAL_BYTES
        return keys + partials + 2 * self.rows * heads * head_dim * itemsize
