"""Memory that a step reuses: one flat buffer per name, grown to the largest size asked for."""

from math import prod

import torch
from torch import Tensor


class Scratch:
    """Uninitialised work memory. A view is valid until the next `take` of the same name."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of `shape` and `dtype`; its content is whatever was there."""
        size = prod(shape)
        buffer = self._buffers.get((name, dtype))
        if buffer is None or buffer.numel() < size:
            buffer = torch.empty(size, dtype=dtype, device=self._device)
            self._buffers[name, dtype] = buffer
        return buffer[:size].view(shape)
