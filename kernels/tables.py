"""What the planners share: spans of rows, block tables as a matrix, items ordered by level, additive
masks."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor


class RowSpan(msgspec.Struct, frozen=True, gc=False):
    """Rows at positions `start <= p < start + rows` of one sequence, whose KV lies in `blocks` (its
    table)."""

    start: int
    rows: int
    blocks: tuple[int, ...]


class TreeSpan(RowSpan, frozen=True, gc=False):
    """Rows that are the nodes of a draft tree, parents before their children: node i lies at `start + i` of
    the table, whatever its depth.

    `ancestors[i]` has bit j set where node i sees node j: itself and its ancestors; every row sees all
    positions before `start`. At most 64 rows. Only the work items (`plan`) know these spans.
    """

    ancestors: tuple[int, ...]


class Level(NamedTuple):
    """Items `first <= i < last`, at most one per row. `rows` are theirs; `scattered` holds them where they
    are not consecutive."""

    rows: slice
    scattered: Tensor | None
    first: int
    last: int


class Leveled(NamedTuple):
    """Items of several rows in the order of their levels, and within a level of their rows: `rows` and
    `level` int64 [items]."""

    rows: np.ndarray
    level: np.ndarray
    levels: list[Level]


def leveled(first_level: np.ndarray, counts: np.ndarray) -> Leveled:
    """Row r has one item at each level `first_level[r] <= j < first_level[r] + counts[r]`."""
    rows = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    level = first_level[rows] + within
    order = np.argsort(level, kind="stable")
    rows, level = rows[order], level[order]
    cuts = [0, *(np.flatnonzero(np.diff(level)) + 1).tolist(), len(level)]
    levels: list[Level] = []
    for first, last in pairwise(cuts):
        lowest, highest = int(rows[first]), int(rows[last - 1])
        dense = highest - lowest + 1 == last - first
        scattered = None if dense else torch.from_numpy(rows[first:last])
        levels.append(Level(slice(lowest, highest + 1), scattered, first, last))
    return Leveled(rows, level, levels)


def key_mask(position: np.ndarray, first_key: np.ndarray, keys: int, window: int | None) -> Tensor:
    """Additive mask fp32 [rows, keys]: -inf for the keys `first_key + i` that lie behind `position`, or
    before its sliding window of `window` positions."""
    distance = (position - first_key)[:, None] - np.arange(keys)
    hidden = distance < 0
    if window is not None:
        hidden |= distance >= window
    return torch.from_numpy(np.where(hidden, np.float32("-inf"), np.float32(0)))


class TableMatrix:
    """Block tables as rows of one matrix. A row is written again only when its table is another object."""

    def __init__(self) -> None:
        self._tables: list[tuple[int, ...]] = []
        self._matrix = np.empty((0, 0), dtype=np.int64)
        self.version = 0

    def fill(self, tables: Sequence[tuple[int, ...]], spare: int) -> np.ndarray:
        """One row per table, followed by at least `spare` entries more; `version` changes if any row did.

        The spare entries are masked wherever they are read. They name the table's own last block, whose
        content is finite.
        """
        width = max(len(table) for table in tables) + spare
        rows, columns = self._matrix.shape
        if len(tables) > rows or width > columns:
            shape = _grown(rows, len(tables)), _grown(columns, width)
            self._matrix = np.empty(shape, dtype=np.int64)
            self._tables = []
        if len(tables) != len(self._tables):
            self.version += 1
        del self._tables[len(tables) :]
        for index, table in enumerate(tables):
            if index < len(self._tables):
                if table is self._tables[index]:
                    continue
                self._tables[index] = table
            else:
                self._tables.append(table)
            self.version += 1
            self._matrix[index, : len(table)] = table
            self._matrix[index, len(table) :] = table[-1]
        return self._matrix


def _grown(size: int, needed: int) -> int:
    """`size` where it is enough, else at least twice of it, so that growing stays rare."""
    return size if needed <= size else max(needed, 2 * size)


def shared_blocks(left: tuple[int, ...], right: tuple[int, ...], limit: int) -> int:
    """How many leading entries two tables have in common, `limit` at most."""
    if left[:limit] == right[:limit]:
        return min(limit, len(left), len(right))
    lower, upper = 0, limit
    while upper - lower > 1:
        middle = (lower + upper) // 2
        if left[lower:middle] == right[lower:middle]:
            lower = middle
        else:
            upper = middle
    return lower
