"""Products on the GPU: the library's own, or the Triton kernels where rows must keep their bits."""

import torch
from torch import Tensor
from torch.nn import functional

from .drawn import Drawn
from .fixed_linear import FixedLinear
from .gpu.lmhead_lse import lmhead_lse
from .gpu.lmhead_sample import MOST_ROWS, lmhead_sample
from .scratch import Scratch


class TritonLinear:
    """Implements `Product`, and `FusedHead` for a weight that is a vocabulary. Any `row_tile` stands for rows
    that keep their bits: the Triton product gives them, whatever their number."""

    needs_row_tile = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [outputs, inputs] and `bias` [outputs] on one device, of one dtype."""
        self._weight = weight.contiguous()
        self._bias = bias
        self._scratch = Scratch(weight.device)
        self._fixed = FixedLinear(self._weight, bias, self._scratch)

    def __call__(self, x: Tensor, row_tile: int | None = None, work: Scratch | None = None) -> Tensor:
        """See `Product`."""
        if row_tile is not None:
            return self._fixed(x, row_tile, work)
        return functional.linear(x, self._weight, self._bias)

    def added(self, x: Tensor, residual: Tensor, row_tile: int | None = None) -> Tensor:
        """See `Product.added`."""
        if row_tile is not None:
            return self._fixed.added(x, residual, row_tile)
        return residual.add_(functional.linear(x, self._weight, self._bias))

    def wide(self, x: Tensor, row_tile: int | None = None) -> Tensor:
        """See `Product.wide`. Recorded passes of all sizes share the memory: each would hold logits for
        good."""
        if row_tile is not None:
            return self._fixed.wide(x, row_tile)
        product = functional.linear(x, self._weight, self._bias)
        return self._scratch.take("wide", tuple(product.shape), torch.float32).copy_(product)

    @property
    def most_draws(self) -> int:
        """See `FusedHead.most_draws`."""
        fits = self._bias is None and self._weight.shape[1] % 16 == 0 and self._weight.dtype != torch.float16
        return MOST_ROWS if fits else 0

    def draw(self, x: Tensor, temperature: Tensor, keys: Tensor) -> Drawn:
        """See `FusedHead.draw`."""
        return lmhead_sample(x, self._weight, temperature, keys)

    def logprobs(self, x: Tensor, targets: Tensor) -> Tensor:
        """See `FusedHead.logprobs`."""
        return lmhead_lse(x, self._weight, targets).logprobs
