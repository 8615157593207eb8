"""The LM head with the draw in its epilogue, for few rows that no filter narrows: no logits reach memory.

A program computes the logits of all rows for one tile of the vocabulary and writes a part of each row
(`row_parts`), in the manner of FlashSampling (arXiv 2603.15854). Reading the weight is nearly all the time at
so few rows, and the race of a token has the bits that `sample_rows` gives it: equal logits draw equal tokens.
"""

import triton
import triton.language as tl
from torch import Tensor

from ..drawn import Drawn
from ..work import power_of_two
from .build import Build, Ceiling
from .launch import on_grid, tiles
from .lmhead_tile import depth_of, tile_logits
from .row_parts import Parts, finish, finish_build, race_scale, write_parts

MOST_ROWS = 64
COLUMNS = 128


@triton.jit(do_not_specialize=["count"])
def read_tiles(
    hidden,
    weight,
    temperature,
    keys,
    values,
    winners,
    stride,
    count,
    width: tl.constexpr,
    parts: tl.constexpr,
    vocab: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
):
    """Write one part of all `count` rows, `rows` at most, per program."""
    row = tl.arange(0, rows)
    part = tl.program_id(0)
    tokens = part * columns + tl.arange(0, columns)
    x = tile_logits(hidden, weight, row, tokens, stride, count, width, vocab, rows, columns, depth)
    wanted = row < count
    degree = tl.load(temperature + row, mask=wanted, other=1.0)
    scale, chance = race_scale(degree, tl.zeros([rows], tl.int1))
    first = tl.load(keys + row, mask=wanted, other=0)
    second = tl.load(keys + count + row, mask=wanted, other=0)
    write_parts(
        x, tokens, scale, chance, first, second, values, winners, row, part, count, parts, vocab, False
    )


def lmhead_sample(
    hidden: Tensor,
    weight: Tensor,
    temperature: Tensor,
    keys: Tensor,
    *,
    out: Drawn | None = None,
    parts: Parts | None = None,
) -> Drawn:
    """One draw per row of `hidden @ weight.T`: `hidden` [rows, width], 64 rows at most, `weight` [vocab,
    width], contiguous, both bf16 or both fp32; `width` is a multiple of 16.

    `temperature` fp32 [rows], 0 for greedy, and `keys` int32 [2, rows], as for `sample_rows`. `out` and the
    work memory `parts`, for `tile_count(vocab)` parts, are made where they are not given. Nothing waits for
    the device.
    """
    rows, width = hidden.shape
    vocab = weight.shape[0]
    assert rows <= MOST_ROWS
    assert hidden.dtype == weight.dtype
    assert hidden.stride(1) == 1
    assert weight.is_contiguous()
    assert keys.is_contiguous()
    assert keys.shape == (2, rows)
    count = tile_count(vocab)
    out = Drawn.empty(rows, hidden.device) if out is None else out
    parts = Parts.empty(rows, count, hidden.device) if parts is None else parts
    if not rows:
        return out
    tile_rows = max(16, power_of_two(rows))
    on_grid(read_tiles, count)(
        hidden,
        weight,
        temperature,
        keys,
        *parts,
        hidden.stride(0),
        rows,
        width=width,
        parts=count,
        vocab=vocab,
        rows=tile_rows,
        columns=COLUMNS,
        depth=depth_of(width),
        num_warps=_warps(tile_rows),
        num_stages=_STAGES,
    )
    finish(parts, vocab, out)
    return out


def tile_count(vocab: int) -> int:
    """In how many parts a row is computed."""
    return tiles(vocab, COLUMNS)


_STAGES = 4


def _warps(rows: int) -> int:
    """64 rows in 4 warps would spill."""
    return 8 if rows == MOST_ROWS else 4


def builds() -> list[Build]:
    """The kernels of Llama 3 8B's head in bf16."""
    width, vocab = 4096, 128256
    parts = tile_count(vocab)
    found = [finish_build("finish_tiles", vocab, parts, Ceiling(registers=64, shared_bytes=64))]
    found += [
        Build(
            name=f"read_tiles {rows} rows",
            kernel=read_tiles,
            signature={
                **dict.fromkeys(("hidden", "weight"), "*bf16"),
                **dict.fromkeys(("temperature", "values"), "*fp32"),
                **dict.fromkeys(("keys", "winners"), "*i32"),
                "stride": "i64",
                "count": "i32",
            },
            constants={
                "width": width,
                "parts": parts,
                "vocab": vocab,
                "rows": rows,
                "columns": COLUMNS,
                "depth": depth_of(width),
            },
            ceilings=dict.fromkeys((80, 90), Ceiling(registers=168, shared_bytes=shared)),
            warps=_warps(rows),
            stages=_STAGES,
            divisible=("stride",),
            wants_async=True,
        )
        for rows, shared in ((16, 57_344), (32, 63_488), (64, 98_304))
    ]
    return found
