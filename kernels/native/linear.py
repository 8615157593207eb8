"""Products with a fixed weight by the native operator; a row's bits never depend on the other rows."""

import ctypes
from ctypes import c_int32, c_int64, c_void_p

import torch
from torch import Tensor
from torch.nn import functional

from ..scratch import Scratch

PANEL = 48
"""Outputs per panel: `kPanel` of product.cpp."""


class _Product(ctypes.Structure):
    """`Product` of product.cpp."""

    _fields_ = [
        ("x", c_void_p),
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("residual", c_void_p),
        ("out", c_void_p),
        ("x_stride", c_int64),
        ("rows", c_int32),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("is_bfloat", c_int32),
        ("is_wide", c_int32),
        ("threads", c_int32),
    ]


def multiplies(native: ctypes.CDLL, weight: Tensor) -> bool:
    """Whether the operator multiplies with this weight: bf16 in pairs where the processor has an instruction
    for them, else left to oneDNN; fp32 always."""
    if weight.dtype == torch.bfloat16:
        return native.branchwise_bfloat_unit() == 2 and weight.shape[1] % 2 == 0
    return weight.dtype == torch.float32


class NativeLinear:
    """Implements `Product`; a `row_tile` makes no difference."""

    needs_row_tile = False

    def __init__(self, native: ctypes.CDLL, weight: Tensor, bias: Tensor | None = None) -> None:
        self._multiply = native.branchwise_multiply
        self._outputs, self._inputs = weight.shape
        self._bias = bias
        unit = 2 if weight.dtype == torch.bfloat16 else 1
        padded = functional.pad(weight, (0, 0, 0, -self._outputs % PANEL))
        panels = padded.view(-1, PANEL, self._inputs // unit, unit)
        self._panels = panels.transpose(1, 2).contiguous()
        self._is_bfloat = int(unit == 2)
        self._scratch = Scratch()

    def __call__(self, x: Tensor, row_tile: int | None = None, work: Scratch | None = None) -> Tensor:
        """The product, [rows, outputs], of `x` [rows, inputs]."""
        size = (x.shape[0], self._outputs)
        return self._product(
            x, None, x.new_empty(size) if work is None else work.take("product", size, x.dtype)
        )

    def wide(self, x: Tensor, row_tile: int | None = None) -> Tensor:
        """See `Product.wide`: never rounded to the weight's type."""
        out = self._scratch.take("wide", (x.shape[0], self._outputs), torch.float32)
        return self._product(x, None, out)

    def added(self, x: Tensor, residual: Tensor, row_tile: int | None = None) -> Tensor:
        """`residual` [rows, outputs] plus the product, rounded once; `residual` may be overwritten."""
        return self._product(x, residual, residual)

    def _product(self, x: Tensor, residual: Tensor | None, out: Tensor) -> Tensor:
        if x.stride(1) != 1 or x.stride(0) % 2:
            x = x.contiguous()
        assert out.is_contiguous()
        self._multiply(
            ctypes.byref(
                _Product(
                    x.data_ptr(),
                    self._panels.data_ptr(),
                    None if self._bias is None else self._bias.data_ptr(),
                    None if residual is None else residual.data_ptr(),
                    out.data_ptr(),
                    x.stride(0),
                    x.shape[0],
                    self._inputs,
                    self._outputs,
                    self._is_bfloat,
                    int(out.dtype == torch.float32),
                    torch.get_num_threads(),
                )
            )
        )
        return out
