"""The KV memory of one model: blocks of keys and values for all layers."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...kernels.dispatch import make_mover
from ..models.step_model import AttentionShape


class KvCache:
    """`blocks` is [layers, 2, num_blocks, kv_heads, block_size, head_dim]; block 0 is the trash block.

    A block is cleared when its first row is written: what an earlier owner left, a NaN for one, never reaches
    a later one through a masked key.
    """

    def __init__(
        self,
        shape: AttentionShape,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._kv_heads = shape.kv_heads
        sizes = (shape.layers, 2, num_blocks, shape.kv_heads, block_size, shape.head_dim)
        self.blocks = _zeros(sizes, dtype, device)
        self._mover = make_mover(device, shape.kv_heads * block_size * shape.head_dim, dtype)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole blocks in all layers; no target is also a source."""
        device = self.blocks.device
        places = torch.tensor((sources, targets)).to(device)
        self._mover.copy(self.blocks, *places)

    def clear(self, blocks: Sequence[int]) -> None:
        """Zero whole blocks in all layers."""
        self._mover.clear(self.blocks, torch.tensor(blocks).to(self.blocks.device))

    def slots(self, blocks: Tensor, offsets: Tensor) -> Tensor:
        """Rows of a layer's pool seen as [2 * num_blocks * kv_heads * block_size, head_dim] for positions at
        `offsets` of `blocks`, int64 [rows] each: [rows * 2 * kv_heads], per row all key heads, then all value
        heads."""
        heads = torch.arange(2 * self._kv_heads, device=blocks.device)
        plane = heads // self._kv_heads * (self.num_blocks * self._kv_heads) + heads % self._kv_heads
        return ((blocks[:, None] * self._kv_heads + plane) * self.block_size + offsets[:, None]).reshape(-1)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on the CPU pages that were never written take no memory and no time."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(pages).view(dtype).view(shape)


def bytes_per_block(shape: AttentionShape, block_size: int, dtype: torch.dtype) -> int:
    """Bytes that one KV block takes over all layers."""
    return shape.layers * 2 * shape.kv_heads * block_size * shape.head_dim * dtype.itemsize
