"""Attention by the native operator: the whole of a layer in one call, for all kinds of rows.

A row's bits depend on its own position and keys alone (see `attention.cpp`), so one implementation serves
both the fast and the deterministic mode.
"""

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..attention import HeadShape
from ..interface import PlannedStep
from ..tables import RowSpan, TableMatrix

_DTYPES = (torch.float32, torch.bfloat16)
_LANES = 16
_LARGEST_DIM = 256
_LARGEST_GROUP = 96


class _Step(ctypes.Structure):
    """`Step` of attention.cpp."""

    _fields_ = [
        ("tables", c_void_p),
        ("span_of_row", c_void_p),
        ("position", c_void_p),
        ("table_stride", c_int64),
        ("pool_blocks", c_int64),
        ("rows", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("dim", c_int32),
        ("block_size", c_int32),
        ("window", c_int32),
        ("is_bfloat", c_int32),
        ("threads", c_int32),
        ("scale", c_float),
    ]


@dataclass(slots=True)
class NativePlan:
    """A step as the operator reads it; `owners` keeps the memory that it points to."""

    step: _Step
    owners: tuple[np.ndarray, ...]


def supports(shape: HeadShape, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the operator computes heads of this shape."""
    return (
        device.type == "cpu"
        and dtype in _DTYPES
        and shape.head_dim % _LANES == 0
        and shape.head_dim <= _LARGEST_DIM
        and shape.block_size % _LANES == 0
        and shape.group <= _LARGEST_GROUP
        and shape.softcap is None
    )


class NativeAttention:
    """Implements `Attention`; `windows` are the sliding windows of the model's layers, None for full
    attention."""

    masks_loads = False
    grouped = True

    def __init__(
        self, native: ctypes.CDLL, shape: HeadShape, windows: Iterable[int | None], dtype: torch.dtype
    ) -> None:
        self._attend = native.branchwise_attend
        self._store = native.branchwise_store
        self._shape = shape
        self._windows = tuple(windows)
        self._is_bfloat = dtype == torch.bfloat16
        self._matrix = TableMatrix()
        self._tables: tuple[tuple[int, ...], ...] = ()
        self._order: list[int] = []

    def plan(self, spans: Sequence[RowSpan]) -> PlannedStep:
        """See `Attention.plan`: spans that share leading blocks become neighbours."""
        order = self._ordered(spans)
        ordered = [spans[index] for index in order]
        tables = self._matrix.fill([span.blocks for span in ordered], 0)
        counts = np.fromiter((span.rows for span in ordered), np.int64, len(ordered))
        starts = np.fromiter((span.start for span in ordered), np.int64, len(ordered))
        span_of_row = np.repeat(np.arange(len(ordered), dtype=np.int32), counts)
        begins = np.cumsum(counts) - counts
        position = ((starts - begins)[span_of_row] + np.arange(len(span_of_row))).astype(np.int32)
        owners = (tables, span_of_row, position)
        return PlannedStep(
            order, {window: NativePlan(self._step(owners, window), owners) for window in self._windows}
        )

    def _ordered(self, spans: Sequence[RowSpan]) -> list[int]:
        """Kept while the block tables are the same objects: comparing long ones costs more than all else."""
        same = len(spans) == len(self._tables) and all(
            span.blocks is table for span, table in zip(spans, self._tables, strict=True)
        )
        if not same:
            self._tables = tuple(span.blocks for span in spans)
            self._order = sorted(range(len(spans)), key=lambda index: spans[index].blocks)
        return self._order

    def _step(self, owners: tuple[np.ndarray, np.ndarray, np.ndarray], window: int | None) -> _Step:
        shape = self._shape
        tables, span_of_row, position = owners
        return _Step(
            tables=tables.ctypes.data,
            span_of_row=span_of_row.ctypes.data,
            position=position.ctypes.data,
            table_stride=tables.shape[1],
            pool_blocks=shape.pool_blocks,
            rows=len(position),
            heads=shape.kv_heads * shape.group,
            kv_heads=shape.kv_heads,
            dim=shape.head_dim,
            block_size=shape.block_size,
            window=window or 0,
            is_bfloat=self._is_bfloat,
            threads=torch.get_num_threads(),
            scale=shape.scale,
        )

    def run(self, query: Tensor, kv: Tensor, plan: NativePlan, out: Tensor) -> None:
        """See `Attention.run`."""
        query = query.flatten(1)
        if query.stride(-1) != 1:
            query = query.contiguous()
        assert out.stride(-1) == 1
        self._attend(
            ctypes.byref(plan.step),
            query.data_ptr(),
            query.stride(0),
            kv.data_ptr(),
            out.data_ptr(),
            out.stride(0),
        )

    def store(self, rows: Tensor, slots: Tensor, kv: Tensor) -> None:
        """See `Attention.store`."""
        shape = self._shape
        rows = rows.contiguous()
        self._store(
            rows.data_ptr(),
            slots.data_ptr(),
            kv.data_ptr(),
            rows.shape[0],
            shape.kv_heads,
            shape.head_dim,
            self._is_bfloat,
        )
