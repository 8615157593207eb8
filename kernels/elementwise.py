"""Norms, rotation and gate in torch, for any device."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .linear import Product


class TorchRotation(NamedTuple):
    """Rows of the tables for a step, [rows, 1, head_dim], and where its keys and values go."""

    cosine: Tensor
    sine: Tensor
    slots: Tensor
    eps: float


class TorchElementwise:
    """Implements `Elementwise`. Norms compute in fp32 as transformers' do."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int) -> None:
        self._heads = heads
        self._kv_heads = kv_heads
        self._head_dim = head_dim

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Elementwise.norm`."""
        return functional.rms_norm(x, weight.shape, weight, eps)

    def gate(self, gate_up: Tensor, *, fixed: bool) -> Tensor:
        """See `Elementwise.gate`. With fixed rows silu is spelled out: torch's own rounds differently in the
        tail of a vector."""
        gate, up = gate_up.chunk(2, -1)
        if not fixed:
            return functional.silu(gate).mul_(up)
        return torch.div(gate, torch.neg(gate).exp_().add_(1.0)).mul_(up)

    def join(
        self,
        product: Product,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        eps: float,
        row_tile: int | None,
    ) -> tuple[Tensor, Tensor]:
        """See `Elementwise.join`; the sum is the product's own."""
        total = product.added(x, residual, row_tile)
        return total, self.norm(total, weight, eps)

    def rotation(
        self, cosine: Tensor, sine: Tensor, positions: Tensor, slots: Tensor, eps: float, *, grouped: bool
    ) -> TorchRotation:
        """See `Elementwise.rotation`; it knows no groups."""
        assert not grouped
        cosine, sine = (table.index_select(0, positions)[:, None] for table in (cosine, sine))
        return TorchRotation(cosine, sine, slots, eps)

    def rotate(
        self,
        qkv: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        pool: Tensor,
        rotation: TorchRotation,
    ) -> None:
        """See `Elementwise.rotate`."""
        cosine, sine, slots, eps = rotation
        heads, dim = self._heads, self._head_dim
        rotated = qkv[:, : heads + self._kv_heads]
        if query_norm is not None and key_norm is not None:
            rotated[:, :heads] = self.norm(rotated[:, :heads], query_norm, eps)
            rotated[:, heads:] = self.norm(rotated[:, heads:], key_norm, eps)
        turned = torch.roll(rotated, dim // 2, -1)
        torch.addcmul(rotated * cosine, turned, sine, out=rotated)
        rows = slots.numel() // (2 * self._kv_heads)
        pool.view(-1, dim).index_copy_(0, slots, qkv[:rows, heads:].reshape(-1, dim))
