"""Norms, rotation and gate by the native operators: one pass over memory each, rounded once."""

import ctypes
from ctypes import c_float, c_int32, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from ..linear import Product
from ..scratch import Scratch


class _Rotation(ctypes.Structure):
    """`Rotation` of elementwise.cpp."""

    _fields_ = [
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("cosine", c_void_p),
        ("sine", c_void_p),
        ("stored", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("dim", c_int32),
        ("eps", c_float),
        ("is_grouped", c_int32),
        ("threads", c_int32),
    ]


@dataclass(slots=True)
class NativeRotation:
    """A step as the operator reads it; `owners` keeps the memory that it points to."""

    step: _Rotation
    owners: tuple[Tensor, ...]


class NativeElementwise:
    """Implements `Elementwise`. Rows are worked on one by one, so their bits never depend on the others."""

    def __init__(
        self, native: ctypes.CDLL, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> None:
        self._native = native
        self._heads = heads
        self._kv_heads = kv_heads
        self._head_dim = head_dim
        self._is_bfloat = int(dtype == torch.bfloat16)
        self._scratch = Scratch()

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Elementwise.norm`."""
        x = x.contiguous()
        rows, width = x.shape
        out = self._scratch.take("norm", (rows, width), x.dtype)
        threads = torch.get_num_threads()
        self._native.branchwise_norm(
            x.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, eps, self._is_bfloat, threads
        )
        return out

    def gate(self, gate_up: Tensor, *, fixed: bool) -> Tensor:
        """See `Elementwise.gate`."""
        gate_up = gate_up.contiguous()
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = self._scratch.take("gate", (rows, width), gate_up.dtype)
        self._native.branchwise_gate(
            gate_up.data_ptr(), out.data_ptr(), rows, width, self._is_bfloat, torch.get_num_threads()
        )
        return out

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
    ) -> NativeRotation:
        """See `Elementwise.rotation`."""
        step = _Rotation(
            positions=positions.data_ptr(),
            slots=slots.data_ptr(),
            cosine=cosine.data_ptr(),
            sine=sine.data_ptr(),
            stored=slots.numel() // (2 * self._kv_heads),
            heads=self._heads,
            kv_heads=self._kv_heads,
            dim=self._head_dim,
            eps=eps,
            is_grouped=grouped,
            threads=torch.get_num_threads(),
        )
        return NativeRotation(step, (positions, slots, cosine, sine))

    def rotate(
        self,
        qkv: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        pool: Tensor,
        rotation: NativeRotation,
    ) -> None:
        """See `Elementwise.rotate`."""
        assert qkv.is_contiguous()
        self._native.branchwise_rotate(
            ctypes.byref(rotation.step),
            qkv.data_ptr(),
            None if query_norm is None else query_norm.data_ptr(),
            None if key_norm is None else key_norm.data_ptr(),
            pool.data_ptr(),
            self._is_bfloat,
        )
