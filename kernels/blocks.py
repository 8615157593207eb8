"""Copies and clears of whole KV blocks, in all layers."""

from typing import Protocol

import torch
from torch import Tensor


class BlockMover(Protocol):
    """Works on pools [layers, 2, blocks, kv_heads, block_size, head_dim]; `sources` and `targets` are int64
    [count] on the pool's device. No target is also a source, no two targets are equal."""

    def copy(self, pool: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks `sources` to `targets`."""
        ...

    def clear(self, pool: Tensor, targets: Tensor) -> None:
        """Zero blocks `targets`."""
        ...


class TorchMover:
    """Implements `BlockMover` on any device."""

    def copy(self, pool: Tensor, sources: Tensor, targets: Tensor) -> None:
        """See `BlockMover.copy`."""
        pool.index_copy_(2, targets, pool.index_select(2, sources))

    def clear(self, pool: Tensor, targets: Tensor) -> None:
        """See `BlockMover.clear`."""
        pool.index_fill_(2, targets, 0)


class TritonMover:
    """Implements `BlockMover` with one launch each and no work memory."""

    def copy(self, pool: Tensor, sources: Tensor, targets: Tensor) -> None:
        """See `BlockMover.copy`."""
        from .gpu.blocks import copy_blocks

        copy_blocks(pool, sources, targets)

    def clear(self, pool: Tensor, targets: Tensor) -> None:
        """See `BlockMover.clear`."""
        from .gpu.blocks import clear_blocks

        clear_blocks(pool, targets)


def whole_words(block_values: int, dtype: torch.dtype) -> bool:
    """Whether a block of one layer, of keys or of values, is a whole number of 4-byte words, as the Triton
    kernel moves them."""
    return block_values * dtype.itemsize % 4 == 0
