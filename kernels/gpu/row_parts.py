"""Rows of logits read in parts: what one part of a row says about statistics and the draw, and the merge.

The parts of a row are cut at fixed columns, so a row's bits depend on nothing but the row. A kernel that has
logits at hand, from memory or from the LM head's product, writes one part per tile; `finish_rows` merges.

The race is Gumbel-max in base 2: `logit * scale - log2(exponential)` with `scale` = log2(e) / temperature,
one fused product per token. A token's value depends on its own logit and noise only, so that every kernel
that races it has the same bits. Greedy rows have scale 1 and no noise.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..drawn import GREEDY_BELOW, Drawn
from ..work import power_of_two
from .build import Build, Ceiling
from .launch import on_grid
from .noise import exponential

FIELDS = 7

_PEAK = tl.constexpr(0)
_WEIGHT = tl.constexpr(1)
_SUM = tl.constexpr(2)
_WEIGHTED = tl.constexpr(3)
_RACE = tl.constexpr(4)
_LOGIT = tl.constexpr(5)
_MASS = tl.constexpr(6)
_GREEDY_BELOW = tl.constexpr(GREEDY_BELOW)
_LOG2_E = tl.constexpr(1.4426950408889634)
_NO_TOKEN = tl.constexpr(0x7FFFFFFF)


class Parts(NamedTuple):
    """Work memory: `values` fp32 [FIELDS, rows, parts] and the parts' winning `tokens` int32 [rows, parts].

    The fields of a part: the largest logit m, sum exp(x - m), sum x, sum exp(x - m) * (x - m), the winning
    race, its logit, and sum exp((x - m) / temperature) where filters need it.
    """

    values: Tensor
    tokens: Tensor

    @classmethod
    def empty(cls, rows: int, parts: int, device: torch.device) -> "Parts":
        """Room for `parts` parts of `rows` rows."""
        return cls(
            torch.empty((FIELDS, rows, parts), dtype=torch.float32, device=device),
            torch.empty((rows, parts), dtype=torch.int32, device=device),
        )


@triton.jit
def race_scale(temperature, sure):
    """Scale and chance of a race at `temperature`, fp32; where `sure`, or at a greedy temperature, the
    largest logit wins."""
    sure = sure | (temperature < _GREEDY_BELOW)
    return tl.where(sure, 1.0, _LOG2_E / tl.where(sure, 1.0, temperature)), tl.where(sure, 0.0, -1.0)


@triton.jit
def race(x, tokens, scale, chance, first, second):
    """What the fp32 logits `x` of `tokens` race with; minus infinity for NaN."""
    noise = tl.log2(exponential(first, second, tokens))
    value = tl.fma(x, scale, chance * noise)
    return tl.where(value > float("-inf"), value, float("-inf"))


@triton.jit
def write_parts(
    x,
    tokens,
    scale,
    chance,
    first,
    second,
    values,
    winners,
    rows,
    part,
    count,
    parts: tl.constexpr,
    vocab: tl.constexpr,
    masses: tl.constexpr,
):
    """Write part `part` of `rows` [r], of which there are `count`, from their logits `x` fp32 [r, c] of
    `tokens` int32 [c]; those from `vocab` on do not count. `scale`, `chance` and the two keys are [r]."""
    inside = (tokens < vocab)[None, :]
    x = tl.where(inside, x, float("-inf"))
    peak = tl.max(x, 1)
    less = x - tl.where(peak == float("-inf"), 0.0, peak)[:, None]
    weight = tl.exp(less)
    value = race(x, tokens[None, :], scale[:, None], chance[:, None], first[:, None], second[:, None])
    best = tl.max(value, 1)
    token = tl.min(tl.where(value == best[:, None], tokens[None, :], _NO_TOKEN), 1)
    logit = tl.max(tl.where(tokens[None, :] == token[:, None], x, float("-inf")), 1)
    wanted = rows < count
    place = rows.to(tl.int64) * parts + part
    field = count.to(tl.int64) * parts
    tl.store(values + _PEAK * field + place, peak, mask=wanted)
    tl.store(values + _WEIGHT * field + place, tl.sum(weight, 1), mask=wanted)
    tl.store(values + _SUM * field + place, tl.sum(tl.where(inside, x, 0.0), 1), mask=wanted)
    weighted = weight * tl.where(x == float("-inf"), 0.0, less)
    tl.store(values + _WEIGHTED * field + place, tl.sum(weighted, 1), mask=wanted)
    tl.store(values + _RACE * field + place, best, mask=wanted)
    tl.store(values + _LOGIT * field + place, logit, mask=wanted)
    if masses:
        tl.store(values + _MASS * field + place, tl.sum(tl.exp2(less * scale[:, None]), 1), mask=wanted)
    tl.store(winners + place, token, mask=wanted)


@triton.jit
def row_winner(values, winners, row, count, parts: tl.constexpr, block: tl.constexpr):
    """The winning token of a row, of equal ones the lowest, and its logit."""
    part = tl.arange(0, block)
    inside = part < parts
    place = row * parts + part
    field = count.to(tl.int64) * parts
    value = tl.load(values + _RACE * field + place, mask=inside, other=float("-inf"))
    token = tl.load(winners + place, mask=inside, other=_NO_TOKEN)
    logits = tl.load(values + _LOGIT * field + place, mask=inside, other=float("-inf"))
    winner = tl.min(tl.where(value == tl.max(value, 0), token, _NO_TOKEN), 0)
    return winner, tl.max(tl.where(token == winner, logits, float("-inf")), 0)


@triton.jit
def row_mass(values, scale, row, count, parts: tl.constexpr, block: tl.constexpr):
    """The largest logit of a row and the mass of all its tokens over that one's, at the row's temperature."""
    part = tl.arange(0, block)
    inside = part < parts
    place = row * parts + part
    peaks = tl.load(values + _PEAK * count.to(tl.int64) * parts + place, mask=inside, other=float("-inf"))
    masses = tl.load(values + _MASS * count.to(tl.int64) * parts + place, mask=inside, other=0.0)
    peak = tl.max(peaks, 0)
    base = tl.where(peak == float("-inf"), 0.0, peak)
    return peak, tl.sum(masses * tl.exp2((peaks - base) * scale), 0)


@triton.jit(do_not_specialize=["count"])
def finish_rows(
    values,
    winners,
    tokens,
    logprobs,
    lse,
    entropy,
    certainty,
    rounds,
    count,
    parts: tl.constexpr,
    vocab: tl.constexpr,
    block: tl.constexpr,
):
    """Merge the parts of one row per program: its statistics, and its draw with nothing filtered."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, block)
    inside = part < parts
    place = values + row * parts + part
    field = count.to(tl.int64) * parts
    peaks = tl.load(place + _PEAK * field, mask=inside, other=float("-inf"))
    weights = tl.load(place + _WEIGHT * field, mask=inside, other=0.0)
    sums = tl.load(place + _SUM * field, mask=inside, other=0.0)
    weighted = tl.load(place + _WEIGHTED * field, mask=inside, other=0.0)
    peak = tl.max(peaks, 0)
    base = tl.where(peak == float("-inf"), 0.0, peak)
    less = tl.where(peaks == float("-inf"), 0.0, peaks - base)
    factor = tl.exp(peaks - base)
    total = tl.sum(weights * factor, 0)
    expected = tl.sum((weighted + weights * less) * factor, 0) / total
    log_total = tl.log(total)
    mean = tl.sum(sums, 0) / vocab - base
    token, logit = row_winner(values, winners, row, count, parts, block)
    tl.store(tokens + row, token)
    tl.store(logprobs + row, logit - base - log_total)
    tl.store(lse + row, base + log_total)
    tl.store(entropy + row, log_total - expected)
    tl.store(certainty + row, log_total - mean - tl.log(tl.cast(vocab, tl.float32)))
    tl.store(rounds + row, 1)


def finish(parts: Parts, vocab: int, out: Drawn) -> None:
    """Merge written `parts` of rows of `vocab` logits into `out`."""
    rows, count = parts.tokens.shape
    on_grid(finish_rows, rows)(
        parts.values,
        parts.tokens,
        out.tokens,
        out.logprobs,
        out.lse,
        out.entropy,
        out.certainty,
        out.rounds,
        rows,
        parts=count,
        vocab=vocab,
        block=power_of_two(count),
        num_warps=4,
    )


def finish_build(name: str, vocab: int, parts: int, ceiling: Ceiling) -> Build:
    """The merge of rows of `vocab` logits that were read in `parts` parts."""
    pointers = ("values", "logprobs", "lse", "entropy", "certainty")
    return Build(
        name=name,
        kernel=finish_rows,
        signature={
            **dict.fromkeys(pointers, "*fp32"),
            **dict.fromkeys(("winners", "tokens", "rounds"), "*i32"),
            "count": "i32",
        },
        constants={"parts": parts, "vocab": vocab, "block": power_of_two(parts)},
        ceilings=dict.fromkeys((80, 90), ceiling),
    )
