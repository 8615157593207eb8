"""Norms, rotation and gate by the Triton kernels: one pass over memory each, rounded once."""

from typing import NamedTuple

import torch
from torch import Tensor

from .gpu.gate import gate_rows
from .gpu.norm import add_and_norm_rows, norm_rows
from .gpu.rotary import rotate_and_store
from .linear import Product
from .scratch import Scratch


class TritonRotation(NamedTuple):
    """What every layer of a step rotates by."""

    cosine: Tensor
    sine: Tensor
    positions: Tensor
    slots: Tensor
    eps: float


class TritonElementwise:
    """Implements `Elementwise`. A program works on one row, so a row's bits never depend on the others."""

    def __init__(self, heads: int, device: torch.device | None = None) -> None:
        """`heads` of queries; work memory on `device`."""
        self._heads = heads
        self._scratch = Scratch(device)

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Elementwise.norm`."""
        return norm_rows(x, weight, eps, self._scratch.take("norm", tuple(x.shape), x.dtype))

    def join(
        self,
        product: Product,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        eps: float,
        row_tile: int | None,
    ) -> tuple[Tensor, Tensor]:
        """See `Elementwise.join`; sum and norm are one pass."""
        out = self._scratch.take("norm", tuple(residual.shape), residual.dtype)
        return residual, add_and_norm_rows(product(x, row_tile), residual, weight, eps, out)

    def gate(self, gate_up: Tensor, *, fixed: bool) -> Tensor:
        """See `Elementwise.gate`; rows are always fixed."""
        rows, both = gate_up.shape
        return gate_rows(gate_up, self._scratch.take("gate", (rows, both // 2), gate_up.dtype))

    def rotation(
        self, cosine: Tensor, sine: Tensor, positions: Tensor, slots: Tensor, eps: float, *, grouped: bool
    ) -> TritonRotation:
        """See `Elementwise.rotation`; it knows no groups. A slot below 0 is padding."""
        assert not grouped
        return TritonRotation(cosine, sine, positions, slots, eps)

    def rotate(
        self,
        qkv: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        pool: Tensor,
        rotation: TritonRotation,
    ) -> None:
        """See `Elementwise.rotate`."""
        norms = None if query_norm is None or key_norm is None else (query_norm, key_norm)
        cosine, sine, positions, slots, eps = rotation
        rotate_and_store(qkv, cosine, sine, positions, slots, norms, eps, pool, self._heads)
