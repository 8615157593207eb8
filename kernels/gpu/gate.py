"""The gate of a feed-forward layer (SwiGLU, Shazeer 2020)."""

import triton
import triton.language as tl
from torch import Tensor

from .build import Build, Ceiling
from .launch import on_grid, tiles

BLOCK = 2048
WARPS = 4


@triton.jit
def silu_mul(gate_up, out, in_stride, width, block: tl.constexpr):
    """`silu(gate) * up` of one block of a row, computed in fp32 and rounded once."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    gate_at = gate_up + row * in_stride + column
    gate = tl.load(gate_at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_at + width, mask=inside, other=0.0).to(tl.float32)
    gated = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * width + column, gated.to(out.dtype.element_ty), mask=inside)


def gate_rows(gate_up: Tensor, out: Tensor) -> Tensor:
    """Write `silu(gate) * up` of `gate_up` [rows, 2 * width] to `out` [rows, width], contiguous, and return
    it. Features of a row of `gate_up` lie side by side."""
    rows, width = out.shape
    if gate_up.stride(1) != 1:
        gate_up = gate_up.contiguous()
    assert gate_up.shape == (rows, 2 * width)
    assert out.is_contiguous()
    if rows:
        on_grid(silu_mul, rows, tiles(width, BLOCK))(
            gate_up, out, gate_up.stride(0), width, block=BLOCK, num_warps=WARPS, num_stages=1
        )
    return out


def builds() -> list[Build]:
    """One build serves all widths that are multiples of 16."""
    return [
        Build(
            name="silu_mul",
            kernel=silu_mul,
            signature={"gate_up": "*bf16", "out": "*bf16", "in_stride": "i32", "width": "i32"},
            constants={"block": BLOCK},
            ceilings=dict.fromkeys((80, 90), Ceiling(registers=40, shared_bytes=0)),
            warps=WARPS,
            stages=1,
            divisible=("in_stride", "width"),
        )
    ]
