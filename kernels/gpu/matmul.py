"""Matrix products whose rows keep their bits in any batch.

The tile, the step over the features and so the order of every sum follow from the weight's shape and type
alone, never from the number of rows; no sum is split between programs. What this gives up against a library
that chooses by the number of rows is the price (He et al. 2025, "Defeating nondeterminism in LLM inference").
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .build import Build, Ceiling
from .launch import on_grid, tiles

_ROW_GROUP = 8
"""Row tiles that pass over a weight tile before the next one, while it lies in the cache."""

_FEW_TILES = 128
"""Output tiles below which a decode step leaves processors idle: an H200 has 132."""


class Tile(NamedTuple):
    """How a product with one weight is cut: rows, outputs and features per step, and how a program runs."""

    rows: int
    outputs: int
    features: int
    warps: int
    stages: int


@triton.jit(do_not_specialize=["rows"])
def matmul(
    x,
    weight,
    bias,
    residual,
    out,
    rows,
    outputs,
    x_stride,
    inputs: tl.constexpr,
    row_block: tl.constexpr,
    output_block: tl.constexpr,
    feature_block: tl.constexpr,
    row_group: tl.constexpr,
    biased: tl.constexpr,
    adds: tl.constexpr,
):
    """One tile of `x @ weight.T`, summed in fp32 over the features in their order, then bias and residual,
    and rounded once."""
    row_tiles = tl.cdiv(rows, row_block)
    output_tiles = tl.cdiv(outputs, output_block)
    per_group = row_group * output_tiles
    group = tl.program_id(0) // per_group
    height = tl.minimum(row_tiles - group * row_group, row_group)
    inner = tl.program_id(0) % per_group
    row = (group * row_group + inner % height) * row_block + tl.arange(0, row_block)
    output = inner // height * output_block + tl.arange(0, output_block)
    feature = tl.arange(0, feature_block)
    row_inside, output_inside = row < rows, output < outputs
    x_at = x + row.to(tl.int64)[:, None] * x_stride + feature[None, :]
    weight_at = weight + output.to(tl.int64)[None, :] * inputs + feature[:, None]
    total = tl.zeros([row_block, output_block], tl.float32)
    for start in range(0, inputs, feature_block):
        if inputs % feature_block == 0:
            left = tl.load(x_at + start, mask=row_inside[:, None], other=0.0)
            right = tl.load(weight_at + start, mask=output_inside[None, :], other=0.0)
        else:
            known = start + feature < inputs
            left = tl.load(x_at + start, mask=row_inside[:, None] & known[None, :], other=0.0)
            right = tl.load(weight_at + start, mask=output_inside[None, :] & known[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    if biased:
        total += tl.load(bias + output, mask=output_inside, other=0.0).to(tl.float32)[None, :]
    inside = row_inside[:, None] & output_inside[None, :]
    place = row.to(tl.int64)[:, None] * outputs + output[None, :]
    if adds:
        total += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)


def tile_for(outputs: int, dtype: torch.dtype) -> Tile:
    """How products with a weight of `outputs` rows in `dtype` are cut: wide tiles where there are enough of
    them to keep a GPU busy with one tile of rows."""
    if dtype == torch.float32:
        # Whole fp32 products run without tensor cores, on registers.
        return Tile(rows=32, outputs=32, features=32, warps=4, stages=3)
    if outputs >= 128 * _FEW_TILES:
        return Tile(rows=64, outputs=128, features=64, warps=4, stages=4)
    if outputs >= 64 * _FEW_TILES:
        return Tile(rows=64, outputs=64, features=64, warps=4, stages=4)
    return Tile(rows=64, outputs=32, features=64, warps=4, stages=5)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, out: Tensor) -> Tensor:
    """Write `x @ weight.T`, plus `bias` [outputs] and `residual` [rows, outputs] where given, to `out` [rows,
    outputs], contiguous, and return it. `x` is [rows, inputs], `weight` [outputs, inputs], contiguous, of one
    dtype; `out` may be fp32, and it may be `residual`."""
    rows, inputs = x.shape
    outputs = weight.shape[0]
    assert x.stride(1) == 1
    assert x.dtype == weight.dtype
    assert all(each is None or each.is_contiguous() for each in (weight, bias, residual, out))
    tile = tile_for(outputs, weight.dtype)
    if rows:
        on_grid(matmul, tiles(rows, tile.rows) * tiles(outputs, tile.outputs))(
            x,
            weight,
            weight if bias is None else bias,
            out if residual is None else residual,
            out,
            rows,
            outputs,
            x.stride(0),
            **_constants(tile, inputs, biased=bias is not None, adds=residual is not None),
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


def _constants(tile: Tile, inputs: int, *, biased: bool, adds: bool) -> dict[str, int | bool]:
    return {
        "inputs": inputs,
        "row_block": tile.rows,
        "output_block": tile.outputs,
        "feature_block": tile.features,
        "row_group": _ROW_GROUP,
        "biased": biased,
        "adds": adds,
    }


def _build(
    name: str,
    inputs: int,
    outputs: int,
    registers: int,
    dtype: torch.dtype = torch.bfloat16,
    *,
    biased: bool = False,
    adds: bool = False,
    wide: bool = False,
) -> Build:
    tile, is_float = tile_for(outputs, dtype), dtype == torch.float32
    element = "*fp32" if is_float else "*bf16"
    loaded = tile.stages * (tile.rows + tile.outputs) * tile.features * dtype.itemsize
    return Build(
        name=f"matmul {name}",
        kernel=matmul,
        signature={
            **dict.fromkeys(("x", "weight", "bias", "residual"), element),
            "out": "*fp32" if wide else element,
            **dict.fromkeys(("rows", "outputs", "x_stride"), "i32"),
        },
        constants=_constants(tile, inputs, biased=biased, adds=adds),
        ceilings=dict.fromkeys((80, 90), Ceiling(registers=registers, shared_bytes=loaded)),
        warps=tile.warps,
        stages=tile.stages,
        divisible=("outputs", "x_stride"),
        wants_async=True,
        narrow_async=0,
        wants_hgmma=not is_float,
    )


def builds() -> list[Build]:
    """The products of Llama 3 8B, one with a bias as Qwen2 has it, and one for each other tile."""
    return [
        _build("qkv", 4096, 6144, 72),
        _build("qkv bias", 3584, 4608, 72, biased=True),
        _build("out", 4096, 4096, 72, adds=True),
        _build("gate_up", 4096, 28672, 168),
        _build("down", 14336, 4096, 72, adds=True),
        _build("head", 4096, 128256, 168, wide=True),
        _build("middle", 4096, 8192, 112),
        _build("fp32", 1024, 3072, 168, torch.float32, adds=True),
    ]
