"""Adds the partial results of each row up by their log-sum-exp."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ..work import power_of_two
from .build import Build, Ceiling

_SLOTS = 8
"""Slots of a row that are read at once."""
_HEADS = 4


@triton.jit
def merge_states_kernel(
    partial,
    partial_lse,
    row_ptr,
    row_slots,
    out,
    out_stride,
    heads: tl.constexpr,
    dim: tl.constexpr,
    padded_dim: tl.constexpr,
    slots_at_once: tl.constexpr,
    heads_at_once: tl.constexpr,
):
    """Row r of `out` [rows, heads * dim], with `out_stride` elements between rows, is the mean of its slots'
    `partial`, weighted by 2 to their `partial_lse`; 0 for a row that has no slot or has seen nothing.

    The order of the additions depends on the row's number of slots alone.
    """
    row = tl.program_id(0)
    head = tl.program_id(1) * heads_at_once + tl.arange(0, heads_at_once)
    column = tl.arange(0, padded_dim)
    some = tl.arange(0, slots_at_once)
    cells = (head < heads)[:, None] & (column < dim)[None, :]
    begin = tl.load(row_ptr + row)
    end = tl.load(row_ptr + row + 1)
    peak = tl.full([heads_at_once], float("-inf"), tl.float32)
    weight = tl.zeros([heads_at_once], tl.float32)
    value = tl.zeros([heads_at_once, padded_dim], tl.float32)
    for start in range(begin, end, slots_at_once):
        real = start + some < end
        slot = tl.load(row_slots + start + some, mask=real, other=0).to(tl.int64)
        place = slot[:, None] * heads + head[None, :]
        known = real[:, None] & (head < heads)[None, :]
        lse = tl.load(partial_lse + place, mask=known, other=float("-inf"))
        higher = tl.maximum(peak, tl.max(lse, 0))
        shift_by = tl.where(higher == float("-inf"), 0.0, higher)
        w = tl.exp2(lse - shift_by[None, :])
        fade = tl.exp2(peak - shift_by)
        part = tl.load(
            partial + place[:, :, None] * dim + column[None, None, :],
            mask=real[:, None, None] & cells[None, :, :],
            other=0.0,
        )
        value = value * fade[:, None] + tl.sum(part * w[:, :, None], 0)
        weight = weight * fade + tl.sum(w, 0)
        peak = higher
    divisor = tl.where(weight == 0.0, 1.0, weight)
    result = (value / divisor[:, None]).to(out.dtype.element_ty)
    target = row.to(tl.int64) * out_stride + head[:, None] * dim + column[None, :]
    tl.store(out + target, result, mask=cells)


def launch(
    partial: Tensor, partial_lse: Tensor, row_ptr: Tensor, row_slots: Tensor, out: Tensor, rows: int
) -> None:
    """Write the first `rows` rows of `out` [.., heads * head_dim] from `partial` fp32 [slots, heads,
    head_dim] and `partial_lse` fp32 [slots, heads]; `row_ptr` and `row_slots` are those of `WorkArrays`."""
    _, heads, dim = partial.shape
    at_once = min(_HEADS, power_of_two(heads))
    kernel: Any = merge_states_kernel[(rows, -(-heads // at_once))]
    kernel(
        partial,
        partial_lse,
        row_ptr,
        row_slots,
        out,
        out.stride(0),
        heads=heads,
        dim=dim,
        padded_dim=max(16, power_of_two(dim)),
        slots_at_once=_SLOTS,
        heads_at_once=at_once,
        num_warps=4,
    )


def builds() -> list[Build]:
    """The merge for heads of 64 and 128 values."""
    signature = {
        "partial": "*fp32",
        "partial_lse": "*fp32",
        "row_ptr": "*i32",
        "row_slots": "*i32",
        "out": "*bf16",
        "out_stride": "i32",
    }
    return [
        Build(
            name=f"merge_states D{dim}",
            kernel=merge_states_kernel,
            signature=signature,
            constants={
                "heads": 32,
                "dim": dim,
                "padded_dim": dim,
                "slots_at_once": _SLOTS,
                "heads_at_once": _HEADS,
            },
            ceilings={80: ceiling, 90: ceiling},
            divisible=("out_stride",),
            stages=1,
        )
        for dim, ceiling in (
            (64, Ceiling(registers=72, shared_bytes=4096)),
            (128, Ceiling(registers=80, shared_bytes=8192)),
        )
    ]
