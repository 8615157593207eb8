"""Log-probabilities of given tokens for many rows, without their logits in memory.

A program computes the logits of a tile of rows for a tile of the vocabulary and keeps their log-sum-exp alone
(the idea of cut cross-entropy, Wijmans et al. 2024, arXiv 2411.09009); a second kernel adds the tiles up.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..drawn import Scored
from .build import Build, Ceiling
from .launch import on_grid, tiles
from .lmhead_tile import depth_of, tile_logits

ROWS = 128
COLUMNS = 128
WARPS = 8
STAGES = 3
CHUNK = 4096
"""Rows at once: their partial sums over a vocabulary of 128k take 33 MB."""

_TILES_AT_ONCE = 16
_ROWS_AT_ONCE = 64


@triton.jit(do_not_specialize=["count"])
def sum_tiles(
    hidden,
    weight,
    targets,
    peaks,
    weights,
    logits,
    stride,
    count,
    width: tl.constexpr,
    vocab: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
):
    """Write the largest logit m and sum exp(x - m), fp32 [tiles, count], of one tile per program, and the
    logits fp32 [count] of the targets in it. Programs side by side share a tile of the weight."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    tile = tl.program_id(1)
    tokens = tile * columns + tl.arange(0, columns)
    x = tile_logits(hidden, weight, row, tokens, stride, count, width, vocab, rows, columns, depth)
    x = tl.where((tokens < vocab)[None, :], x, float("-inf"))
    peak = tl.max(x, 1)
    weight_sum = tl.sum(tl.exp(x - tl.where(peak == float("-inf"), 0.0, peak)[:, None]), 1)
    wanted = row < count
    place = tile.to(tl.int64) * count + row
    tl.store(peaks + place, peak, mask=wanted)
    tl.store(weights + place, weight_sum, mask=wanted)
    target = tl.load(targets + row, mask=wanted, other=-1).to(tl.int32)
    hit = tokens[None, :] == target[:, None]
    held = wanted & (target >= tile * columns) & (target < (tile + 1) * columns)
    tl.store(logits + row, tl.sum(tl.where(hit, x, 0.0), 1), mask=held)


@triton.jit(do_not_specialize=["count"])
def add_tiles(
    peaks,
    weights,
    logits,
    logprobs,
    lse,
    count,
    tiles: tl.constexpr,
    rows: tl.constexpr,
    at_once: tl.constexpr,
):
    """Add up the tiles of `rows` rows per program, `at_once` at a time."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    wanted = row < count
    peak = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    for start in range(0, tiles, at_once):
        tile = start + tl.arange(0, at_once)
        place = tile.to(tl.int64)[:, None] * count + row[None, :]
        inside = (tile < tiles)[:, None] & wanted[None, :]
        some = tl.load(peaks + place, mask=inside, other=float("-inf"))
        part = tl.load(weights + place, mask=inside, other=0.0)
        highest = tl.maximum(peak, tl.max(some, 0))
        base = tl.where(highest == float("-inf"), 0.0, highest)
        total = total * tl.exp(peak - base) + tl.sum(part * tl.exp(some - base[None, :]), 0)
        peak = highest
    base = tl.where(peak == float("-inf"), 0.0, peak)
    normaliser = base + tl.log(total)
    tl.store(lse + row, normaliser, mask=wanted)
    tl.store(logprobs + row, tl.load(logits + row, mask=wanted, other=0.0) - normaliser, mask=wanted)


def lmhead_lse(hidden: Tensor, weight: Tensor, targets: Tensor, *, out: Scored | None = None) -> Scored:
    """Log-probabilities of `targets` [rows], integers in [0, vocab), under `hidden @ weight.T`: `hidden`
    [rows, width], `weight` [vocab, width], contiguous, both bf16 or both fp32; `width` is a multiple of 16.
    Beside the result it takes `CHUNK` rows' partial sums. Nothing waits for the device."""
    rows, width = hidden.shape
    vocab = weight.shape[0]
    assert hidden.dtype == weight.dtype
    assert hidden.stride(1) == 1
    assert weight.is_contiguous()
    assert targets.shape == (rows,)
    assert targets.is_contiguous()
    out = Scored.empty(rows, hidden.device) if out is None else out
    parts = tiles(vocab, COLUMNS)
    shape = (parts, min(rows, CHUNK))
    peaks, weights = (torch.empty(shape, dtype=torch.float32, device=hidden.device) for _ in range(2))
    logits = torch.empty(shape[1], dtype=torch.float32, device=hidden.device)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        on_grid(sum_tiles, tiles(count, ROWS), parts)(
            hidden[start:],
            weight,
            targets[start:],
            peaks,
            weights,
            logits,
            hidden.stride(0),
            count,
            width=width,
            vocab=vocab,
            rows=ROWS,
            columns=COLUMNS,
            depth=depth_of(width),
            num_warps=WARPS,
            num_stages=STAGES,
        )
        on_grid(add_tiles, tiles(count, _ROWS_AT_ONCE))(
            peaks,
            weights,
            logits,
            out.logprobs[start:],
            out.lse[start:],
            count,
            tiles=parts,
            rows=_ROWS_AT_ONCE,
            at_once=_TILES_AT_ONCE,
            num_warps=4,
        )
    return out


def builds() -> list[Build]:
    """The kernels of Llama 3 8B's head in bf16."""
    width, vocab = 4096, 128256
    sums = dict.fromkeys(("peaks", "weights", "logits"), "*fp32")
    return [
        Build(
            name="sum_tiles",
            kernel=sum_tiles,
            signature={
                **sums,
                **dict.fromkeys(("hidden", "weight"), "*bf16"),
                "targets": "*i64",
                "stride": "i64",
                "count": "i32",
            },
            constants={
                "width": width,
                "vocab": vocab,
                "rows": ROWS,
                "columns": COLUMNS,
                "depth": depth_of(width),
            },
            ceilings={
                80: Ceiling(registers=168, shared_bytes=65_536),
                90: Ceiling(registers=128, shared_bytes=98_304),
            },
            warps=WARPS,
            stages=STAGES,
            divisible=("stride",),
            wants_async=True,
            wants_hgmma=True,
        ),
        Build(
            name="add_tiles",
            kernel=add_tiles,
            signature={**sums, **dict.fromkeys(("logprobs", "lse"), "*fp32"), "count": "i32"},
            constants={
                "tiles": tiles(vocab, COLUMNS),
                "rows": _ROWS_AT_ONCE,
                "at_once": _TILES_AT_ONCE,
            },
            ceilings=dict.fromkeys((80, 90), Ceiling(registers=48, shared_bytes=1024)),
        ),
    ]
