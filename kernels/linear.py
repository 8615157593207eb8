"""Matrix products with a fixed weight: prepacked for oneDNN on the CPU, plain elsewhere.

With a `row_tile` every product has exactly that many rows (the last tile is padded by the caller), so a row's
bits do not depend on how many rows come with it. Within a tile they do not depend on the row's index either:
each output element is one accumulation over the features in an order that the shape alone decides. The tests
hold both on the machine at hand.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from .scratch import Scratch

ROW_TILE = 16
"""Rows per product in deterministic mode."""

_WIDE = 4
"""Narrow tiles in a wide one."""


def whole_tiles(rows: int, row_tile: int | None = ROW_TILE) -> int:
    """`rows` rounded up to a multiple of `row_tile`, if there is one."""
    return rows + -rows % (row_tile or 1)


class Product(Protocol):
    """`x @ weight.T + bias` for a fixed `weight` [outputs, inputs] and optional `bias` [outputs]."""

    needs_row_tile: bool
    """Whether a row's bits are its own only in products of a fixed number of rows."""

    def __call__(self, x: Tensor, row_tile: int | None = None, work: Scratch | None = None) -> Tensor:
        """The product, [rows, outputs]. With `row_tile`, `rows` must be a multiple of it. With `work` it may
        lie there, until the next product does: fresh memory of this size costs more than it takes to fill."""
        ...

    def added(self, x: Tensor, residual: Tensor, row_tile: int | None = None) -> Tensor:
        """`residual` [rows, outputs] plus the product; `residual` may be overwritten."""
        ...

    def wide(self, x: Tensor, row_tile: int | None = None) -> Tensor:
        """The product in fp32, [rows, outputs]; the next call of this method may overwrite it."""
        ...


def _packs(weight: Tensor) -> bool:
    """Whether oneDNN holds a packed form of this weight that is faster than the plain one."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


class Linear:
    """Implements `Product`."""

    needs_row_tile = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._outputs, self._inputs = weight.shape
        self._dtype = weight.dtype
        self._wide: bool | None = None
        self._bias = bias
        self._packed = _packs(weight)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROW_TILE) if self._packed else weight

    def __call__(self, x: Tensor, row_tile: int | None = None, work: Scratch | None = None) -> Tensor:
        """See `Product`."""
        if row_tile is None or x.shape[0] == row_tile:
            return self._product(x)
        return torch.cat([self._product(tile) for tile in x.split(self._tiles(x.shape[0], row_tile))])

    def wide(self, x: Tensor, row_tile: int | None = None) -> Tensor:
        """See `Product.wide`."""
        return self(x, row_tile).float()

    def added(self, x: Tensor, residual: Tensor, row_tile: int | None = None) -> Tensor:
        """See `Product.added`."""
        if row_tile is None or x.shape[0] == row_tile:
            return self._sum(x, residual)
        tiles = self._tiles(x.shape[0], row_tile)
        return torch.cat(
            [self._sum(*pair) for pair in zip(x.split(tiles), residual.split(tiles), strict=True)]
        )

    def _tiles(self, rows: int, row_tile: int) -> list[int]:
        """How `rows` are cut: into wide tiles as far as they go where those are known to give the same
        bits."""
        wide = row_tile * _WIDE
        if rows < wide or not self._wide_is_equal(row_tile):
            return [row_tile] * (rows // row_tile)
        return [wide] * (rows // wide) + [row_tile] * (rows % wide // row_tile)

    def _wide_is_equal(self, row_tile: int) -> bool:
        """Whether one product of a wide tile equals the narrow ones bit by bit on this machine; tried
        once."""
        if self._wide is None:
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(row_tile * _WIDE, self._inputs, generator=generator)
            x = x.to(self._weight.device, self._dtype)
            residual = x.new_ones(x.shape[0], self._outputs)
            narrow = [self._sum(tile, residual[:row_tile].clone()) for tile in x.split(row_tile)]
            self._wide = torch.equal(self._sum(x, residual), torch.cat(narrow))
        return self._wide

    def _product(self, x: Tensor) -> Tensor:
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return functional.linear(x, self._weight, self._bias)

    def _sum(self, x: Tensor, residual: Tensor) -> Tensor:
        """The fused sum is rounded once, so all rows of a mode must take the same way."""
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self._weight, self._bias, "add")
        return residual.add_(self._product(x))
