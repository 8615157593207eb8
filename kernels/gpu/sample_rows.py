"""Draws from rows of logits: temperature, top-k, top-p and min-p without a sort, and the rows' statistics.

One pass over the rows gives every statistic and the winner of the race of all tokens. Where filters are set
and that winner is filtered, so is all that ranks behind it, and the tokens before it race again with the same
noise: a round. The winner of the last round is the one of the race among the tokens that are left, so the
token is the one that a sort would give.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..drawn import Drawn, Filters
from ..work import power_of_two
from .build import Build, Ceiling
from .launch import on_grid, tiles
from .row_filter import race_before, ranked_before, top_mass
from .row_parts import Parts, finish, finish_build, race_scale, row_mass, row_winner, write_parts

COLUMNS = 4096
READ_WARPS = 8
FILTER_WARPS = 16
"""A row's filters are one program's work, and it has a core of the GPU mostly to itself."""


@triton.jit(do_not_specialize=["count"])
def read_rows(
    logits,
    temperature,
    top_k,
    top_p,
    keys,
    values,
    winners,
    stride,
    count,
    parts: tl.constexpr,
    vocab: tl.constexpr,
    columns: tl.constexpr,
    filters: tl.constexpr,
):
    """Write one part of one row per program."""
    row = tl.program_id(0) + tl.arange(0, 1)
    part = tl.program_id(1)
    sure = tl.zeros([1], tl.int1)
    if filters:
        sure = (tl.load(top_k + row) == 1) | (tl.load(top_p + row) == 0.0)
    scale, chance = race_scale(tl.load(temperature + row), sure)
    tokens = part * columns + tl.arange(0, columns)
    place = logits + row.to(tl.int64)[:, None] * stride + tokens[None, :]
    x = tl.load(place, mask=(tokens < vocab)[None, :], other=float("-inf")).to(tl.float32)
    first, second = tl.load(keys + row), tl.load(keys + count + row)
    write_parts(
        x, tokens, scale, chance, first, second, values, winners, row, part, count, parts, vocab, filters
    )


@triton.jit(do_not_specialize=["count"])
def filter_rows(
    logits,
    temperature,
    top_k,
    top_p,
    min_p,
    keys,
    values,
    winners,
    tokens,
    logprobs,
    lse,
    rounds,
    stride,
    count,
    parts: tl.constexpr,
    vocab: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    shift: tl.constexpr,
):
    """Replace the draw of one row per program by the one that its filters leave; rows that none narrows, and
    rows that are not finite, stay as they are."""
    row = tl.program_id(0).to(tl.int64)
    k, p, least = tl.load(top_k + row), tl.load(top_p + row), tl.load(min_p + row)
    degree = tl.load(temperature + row)
    # For Triton's types a function called by a kernel does not return.
    scale, chance = race_scale(degree, (k == 1) | (p == 0.0))  # pyright: ignore[reportGeneralTypeIssues]
    normaliser = tl.load(lse + row)
    cut = (k > 0) & (k < vocab)
    narrow = (cut | (p < 1.0) | (least > 0.0)) & (chance != 0.0)
    if narrow & (tl.abs(normaliser) < float("inf")):
        first, second = tl.load(keys + row), tl.load(keys + count + row)
        at, peaks = logits + row * stride, values + row * parts
        token, logit = row_winner(values, winners, row, count, parts, block)
        peak, mass = row_mass(values, scale, row, count, parts, block)
        if cut & (p < 1.0):
            mass = top_mass(at, peaks, k, peak, scale, vocab, parts, columns, shift)
        most = tl.where(p < 1.0, p * mass, float("inf"))
        kept = tl.where(cut, k, vocab)
        floor = tl.where(least > 0.0, tl.log(tl.maximum(least, 1e-37)), float("-inf"))
        races = 1
        searching = True
        while searching:
            ahead, before = ranked_before(at, peaks, logit, token, peak, scale, vocab, parts, columns)
            stays = (ahead < kept) & (before < most) & ((logit - peak) / degree >= floor)
            searching = (ahead > 0) & (stays == 0)
            if searching:
                token, logit = race_before(
                    at,
                    peaks,
                    logit,
                    token,
                    peak,
                    degree,
                    floor,
                    scale,
                    chance,
                    first,
                    second,
                    vocab,
                    parts,
                    columns,
                )
                races += 1
        tl.store(tokens + row, token)
        tl.store(logprobs + row, logit - normaliser)
        tl.store(rounds + row, races)


def sample_rows(
    logits: Tensor,
    temperature: Tensor,
    keys: Tensor,
    filters: Filters | None = None,
    *,
    out: Drawn | None = None,
    parts: Parts | None = None,
    columns: int = COLUMNS,
) -> Drawn:
    """One draw per row of `logits` [rows, vocab], fp32 or bf16, whose rows may lie apart.

    `temperature` fp32 [rows], 0 for greedy; `keys` int32 [2, rows] from `noise.row_keys`; without `filters`
    no row is narrowed. A row's result depends on its own logits, parameters and keys only. `out` and the work
    memory `parts`, for `row_part_count(vocab, columns)` parts, are made where they are not given; a part is
    `columns`, a power of 2. Nothing waits for the device.
    """
    rows, vocab = logits.shape
    assert logits.stride(1) == 1
    assert keys.is_contiguous()
    assert keys.shape == (2, rows)
    count = row_part_count(vocab, columns)
    out = Drawn.empty(rows, logits.device) if out is None else out
    parts = Parts.empty(rows, count, logits.device) if parts is None else parts
    if not rows:
        return out
    top_k, top_p, min_p = filters or (temperature, temperature, temperature)
    on_grid(read_rows, rows, count)(
        logits,
        temperature,
        top_k,
        top_p,
        keys,
        *parts,
        logits.stride(0),
        rows,
        parts=count,
        vocab=vocab,
        columns=columns,
        filters=filters is not None,
        num_warps=READ_WARPS,
    )
    finish(parts, vocab, out)
    if filters is not None:
        on_grid(filter_rows, rows)(
            logits,
            temperature,
            top_k,
            top_p,
            min_p,
            keys,
            *parts,
            out.tokens,
            out.logprobs,
            out.lse,
            out.rounds,
            logits.stride(0),
            rows,
            parts=count,
            vocab=vocab,
            columns=columns,
            block=power_of_two(count),
            shift=16 if logits.dtype == torch.bfloat16 else 0,
            num_warps=FILTER_WARPS,
        )
    return out


def row_part_count(vocab: int, columns: int = COLUMNS) -> int:
    """In how many parts a row of `vocab` logits is read."""
    return tiles(vocab, columns)


def builds() -> list[Build]:
    """The kernels over Llama 3's vocabulary."""
    vocab = 128256
    parts = row_part_count(vocab)
    constants = {"parts": parts, "vocab": vocab, "columns": COLUMNS}
    found = [finish_build("finish_rows", vocab, parts, Ceiling(registers=32, shared_bytes=64))]
    for dtype, shift in (("fp32", 0), ("bf16", 16)):
        reading = {
            "logits": f"*{dtype}",
            **dict.fromkeys(("temperature", "top_p", "values"), "*fp32"),
            **dict.fromkeys(("top_k", "keys", "winners"), "*i32"),
            "stride": "i64",
            "count": "i32",
        }
        found += [
            Build(
                name=f"read_rows {dtype}{' filtered' * filters}",
                kernel=read_rows,
                signature=reading,
                constants={**constants, "filters": filters},
                ceilings=dict.fromkeys((80, 90), Ceiling(registers=128, shared_bytes=64)),
                warps=READ_WARPS,
                divisible=("stride",),
            )
            for filters in (False, True)
        ]
        found.append(
            Build(
                name=f"filter_rows {dtype}",
                kernel=filter_rows,
                signature={
                    **reading,
                    **dict.fromkeys(("min_p", "logprobs", "lse"), "*fp32"),
                    **dict.fromkeys(("tokens", "rounds"), "*i32"),
                },
                constants={**constants, "block": power_of_two(parts), "shift": shift},
                ceilings=dict.fromkeys((80, 90), Ceiling(registers=120, shared_bytes=128)),
                warps=FILTER_WARPS,
                divisible=("stride",),
            )
        )
    return found
