"""Rows of a step through a model: the forward pass, and the head on chosen rows."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ...kernels.interface import Attention, PlannedStep
from ...kernels.linear import whole_tiles
from ..models.step_model import Batch, StepModel
from ..sched.plan import TRASH_BLOCK, Span
from .cache import KvCache


class StepRows(NamedTuple):
    """What goes into a pass, on the host: int64 [rows] each. Keys and values of a row go to `offsets` of
    `blocks`."""

    tokens: np.ndarray
    positions: np.ndarray
    blocks: np.ndarray
    offsets: np.ndarray


def step_rows(spans: Sequence[Span], rows: int, block_size: int) -> StepRows:
    """The rows of `spans`, one span after the other. Writes before a span's `write_from` go to the trash
    block."""
    tokens, positions = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    blocks = np.empty(rows, np.int64)
    first = 0
    for span in spans:
        count = len(span.tokens)
        if count == 1:
            tokens[first], positions[first] = span.tokens[0], span.start
            blocks[first] = (
                span.blocks[span.start // block_size] if span.start >= span.write_from else TRASH_BLOCK
            )
        else:
            where, last = slice(first, first + count), span.start + count
            tokens[where] = span.tokens
            positions[where] = np.arange(span.start, last)
            blocks[where] = np.asarray(span.blocks, np.int64)[positions[where] // block_size]
            blocks[first : first + min(max(span.write_from - span.start, 0), count)] = TRASH_BLOCK
        first += count
    return StepRows(tokens, positions, blocks, positions % block_size)


class Passes(Protocol):
    """How one model computes."""

    def forward(self, rows: StepRows, planned: PlannedStep) -> Tensor:
        """Hidden states [at least rows, hidden] of the rows in the order that `planned` attends in; valid
        until the next pass."""
        ...

    def head(self, hidden: Tensor, chosen: Sequence[int]) -> Tensor:
        """Logits fp32 [chosen, columns] of these rows of what `forward` returned; the next call may overwrite
        them."""
        ...


class EagerPasses:
    """Implements `Passes`, one operation after the other. With `row_tile` the rows of a pass are padded to a
    multiple of it."""

    def __init__(
        self, decoder: StepModel, cache: KvCache, attention: Attention, row_tile: int | None
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._attention = attention
        self._row_tile = row_tile

    def forward(self, rows: StepRows, planned: PlannedStep) -> Tensor:
        """See `Passes.forward`."""
        device, count = self._decoder.device, len(rows.tokens)
        padding = whole_tiles(count, self._row_tile) - count
        slots = self._cache.slots(torch.from_numpy(rows.blocks), torch.from_numpy(rows.offsets))
        tokens, positions = rows.tokens, rows.positions
        if padding:
            tokens, positions = (np.pad(values, (0, padding)) for values in (tokens, positions))
        batch = Batch(
            torch.from_numpy(tokens).to(device),
            torch.from_numpy(positions).to(device),
            slots.to(device),
            planned.by_window,
            self._row_tile,
        )
        return self._decoder.forward(batch, self._cache.blocks, self._attention)

    def head(self, hidden: Tensor, chosen: Sequence[int]) -> Tensor:
        """See `Passes.head`."""
        if list(chosen) != list(range(hidden.shape[0])):
            hidden = hidden.index_select(0, torch.tensor(chosen, device=hidden.device))
        return self._decoder.head(hidden, self._row_tile)
