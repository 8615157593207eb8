"""Products with a fixed weight whose rows keep their bits in any batch, by the Triton kernel."""

import torch
from torch import Tensor

from .gpu.matmul import multiply
from .scratch import Scratch


class FixedLinear:
    """Implements `Product`; a `row_tile` makes no difference."""

    needs_row_tile = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None, scratch: Scratch | None = None) -> None:
        """`weight` [outputs, inputs] and `bias` [outputs] on one device, of one dtype. Wide products lie in
        `scratch`, or in memory of its own."""
        self._weight = weight.contiguous()
        self._bias = bias
        self._scratch = scratch or Scratch(weight.device)

    def __call__(self, x: Tensor, row_tile: int | None = None, work: Scratch | None = None) -> Tensor:
        """The product, [rows, outputs], of `x` [rows, inputs]."""
        size = (x.shape[0], self._weight.shape[0])
        out = x.new_empty(size) if work is None else work.take("product", size, x.dtype)
        return self._product(x, None, out)

    def added(self, x: Tensor, residual: Tensor, row_tile: int | None = None) -> Tensor:
        """`residual` [rows, outputs] plus the product, rounded once; `residual` may be overwritten."""
        residual = residual.contiguous()
        return self._product(x, residual, residual)

    def wide(self, x: Tensor, row_tile: int | None = None) -> Tensor:
        """See `Product.wide`: never rounded to the weight's type."""
        size = (x.shape[0], self._weight.shape[0])
        return self._product(x, None, self._scratch.take("wide", size, torch.float32))

    def _product(self, x: Tensor, residual: Tensor | None, out: Tensor) -> Tensor:
        if x.stride(1) != 1:
            x = x.contiguous()
        return multiply(x, self._weight, self._bias, residual, out)
