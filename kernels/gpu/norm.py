"""Root-mean-square norm of rows (Zhang and Sennrich 2019), with the residual sum before it in the same
pass."""

import triton
import triton.language as tl
from torch import Tensor

from ..work import power_of_two
from .build import Build, Ceiling
from .launch import on_grid

WIDEST = 16384
"""Elements of the longest row."""


@triton.jit
def rmsnorm_residual(
    x,
    residual,
    weight,
    out,
    x_stride,
    eps,
    width: tl.constexpr,
    block: tl.constexpr,
    adds: tl.constexpr,
):
    """One program per row, so a row's bits are its own. The sum is rounded to the residual's type before it
    is normed, as it is when it is stored; the normed row is rounded once, after the weight."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < width
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if adds:
        place = residual + row * width + column
        total = value + tl.load(place, mask=inside, other=0.0).to(tl.float32)
        kept = total.to(residual.dtype.element_ty)
        tl.store(place, kept, mask=inside)
        value = kept.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, (value * scale * factor).to(out.dtype.element_ty), mask=inside)


def norm_rows(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> Tensor:
    """Write the norm of the rows of `x` [rows, width], times `weight` [width], to `out` [rows, width],
    contiguous, and return it. Features of a row of `x` lie side by side."""
    return _launch(x, None, weight, eps, out)


def add_and_norm_rows(x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor) -> Tensor:
    """Add `x` [rows, width] to `residual` [rows, width], contiguous, in place, and write the norm of the sum
    to `out` as `norm_rows` does."""
    return _launch(x, residual, weight, eps, out)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, out: Tensor) -> Tensor:
    rows, width = x.shape
    if width > WIDEST:
        raise ValueError(f"rows of {width} elements; the norm takes {WIDEST} at most")
    if x.stride(1) != 1:
        x = x.contiguous()
    assert out.is_contiguous()
    assert residual is None or residual.is_contiguous()
    block = power_of_two(width)
    if rows:
        on_grid(rmsnorm_residual, rows)(
            x,
            out if residual is None else residual,
            weight,
            out,
            x.stride(0),
            eps,
            width=width,
            block=block,
            adds=residual is not None,
            num_warps=_warps(block),
            num_stages=1,
        )
    return out


def _warps(block: int) -> int:
    """16 elements per thread, of which 8 make a load of 128 bits in bf16."""
    return min(max(block // 512, 1), 16)


def _build(width: int, *, adds: bool, registers: int) -> Build:
    block = power_of_two(width)
    return Build(
        name=f"rmsnorm{'_residual' if adds else ''} {width}",
        kernel=rmsnorm_residual,
        signature={
            **dict.fromkeys(("x", "residual", "weight", "out"), "*bf16"),
            "x_stride": "i32",
            "eps": "fp32",
        },
        constants={"width": width, "block": block, "adds": adds},
        ceilings=dict.fromkeys((80, 90), Ceiling(registers=registers, shared_bytes=256)),
        warps=_warps(block),
        stages=1,
        divisible=("x_stride",),
    )


def builds() -> list[Build]:
    """Hidden sizes of models of 1.5 to 70 billion parameters."""
    return [_build(width, adds=adds, registers=40) for width in (1536, 4096, 8192) for adds in (False, True)]
