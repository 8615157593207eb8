"""Top-k, top-p and min-p of one row of logits by passes over it, without a sort.

A token's rank counts the tokens with a larger logit, and of equal logits those with a lower id. A pass skips
the parts of the row whose largest logit rules them out: of a peaked row few are read twice.
"""

import triton
import triton.language as tl

from .row_parts import race

_NO_TOKEN = tl.constexpr(0x7FFFFFFF)
_LEAST = tl.constexpr(-(1 << 31))


@triton.jit
def _logits(row, part, tokens, vocab: tl.constexpr, columns: tl.constexpr):
    at = part * columns + tokens
    return tl.load(row + at, mask=at < vocab, other=float("-inf")).to(tl.float32)


@triton.jit
def ranked_before(
    row, peaks, logit, token, peak, scale, vocab: tl.constexpr, parts: tl.constexpr, columns: tl.constexpr
):
    """How many tokens rank before `token` with its `logit`, int32, and their mass over the most likely one's.

    `row` points to the logits, `peaks` to the largest of each of its `parts` of `columns` columns.
    """
    tokens = tl.arange(0, columns)
    count = tl.zeros([columns], tl.int32)
    mass = tl.zeros([columns], tl.float32)
    for part in range(parts):
        if tl.load(peaks + part) >= logit:
            x = _logits(row, part, tokens, vocab, columns)
            before = (x > logit) | ((x == logit) & (part * columns + tokens < token))
            count += before.to(tl.int32)
            mass += tl.where(before, tl.exp2((x - peak) * scale), 0.0)
    return tl.sum(count, 0), tl.sum(mass, 0)


@triton.jit
def race_before(
    row,
    peaks,
    logit,
    token,
    peak,
    temperature,
    floor,
    scale,
    chance,
    first,
    second,
    vocab: tl.constexpr,
    parts: tl.constexpr,
    columns: tl.constexpr,
):
    """The winner, and its logit, of the tokens that rank before `token` with its `logit` and whose score
    (logit less `peak`, over `temperature`) is `floor` at least. Other arguments as for `ranked_before` and
    `race`."""
    tokens = tl.arange(0, columns)
    best = tl.full([columns], float("-inf"), tl.float32)
    winners = tl.full([columns], _NO_TOKEN, tl.int32)
    logits = tl.full([columns], float("-inf"), tl.float32)
    for part in range(parts):
        if tl.load(peaks + part) >= logit:
            x = _logits(row, part, tokens, vocab, columns)
            ids = part * columns + tokens
            raced = (x > logit) | ((x == logit) & (ids < token))
            raced = raced & ((x - peak) / temperature >= floor)
            value = tl.where(raced, race(x, ids, scale, chance, first, second), float("-inf"))
            wins = value > best
            best = tl.where(wins, value, best)
            winners = tl.where(wins, ids, winners)
            logits = tl.where(wins, x, logits)
    winner = tl.min(tl.where(best == tl.max(best, 0), winners, _NO_TOKEN), 0)
    return winner, tl.max(tl.where(winners == winner, logits, float("-inf")), 0)


@triton.jit
def top_mass(
    row,
    peaks,
    k,
    peak,
    scale,
    vocab: tl.constexpr,
    parts: tl.constexpr,
    columns: tl.constexpr,
    shift: tl.constexpr,
):
    """The mass of the `k` most likely tokens, 0 < k < vocab, over the most likely one's.

    Logits are compared as ordered integers. The k-th largest of the columns' maxima bounds the k-th largest
    logit from below, and mostly nearly equals it; passes that count at three pivots close in on it, and stop
    once exactly k tokens are above. Equal logits have equal mass, so which of them stay need not be known.
    """
    high = _ordered(peak, shift).to(tl.int64) + 1
    low = _kth_of(_column_maxima(row, vocab, parts, columns, shift), k, high, columns, shift)
    at_low, _middle, _upper = _counts_from(row, peaks, low, low, low, vocab, parts, columns, shift)
    while (high - low > 1) & (at_low != k):
        step = tl.maximum((high - low) >> 2, 1)
        first = low + step
        second = tl.minimum(first + step, high - 1)
        third = tl.minimum(second + step, high - 1)
        at_1, at_2, at_3 = _counts_from(row, peaks, first, second, third, vocab, parts, columns, shift)
        high = tl.where(at_1 < k, first, tl.where(at_2 < k, second, tl.where(at_3 < k, third, high)))
        low = tl.where(at_3 >= k, third, tl.where(at_2 >= k, second, tl.where(at_1 >= k, first, low)))
        at_low = tl.where(at_3 >= k, at_3, tl.where(at_2 >= k, at_2, tl.where(at_1 >= k, at_1, at_low)))
    edge = tl.where(at_low == k, low, high)
    count, mass = _mass_from(row, peaks, edge, peak, scale, vocab, parts, columns, shift)
    at_edge = tl.exp2((_value((edge - 1).to(tl.int32), shift) - peak) * scale)
    return mass + tl.where(count < k, (k - count).to(tl.float32) * at_edge, 0.0)


@triton.jit
def _ordered(x, shift: tl.constexpr):
    """Integers in the order of fp32 `x`, without the `shift` low bits that its source did not have."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)  # the sum makes -0 equal 0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> shift


@triton.jit
def _value(key, shift: tl.constexpr):
    """The fp32 value of an ordered integer. The low bits that a negative one lost were set, and are clear in
    its value."""
    bits = key << shift
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return ((bits >> shift) << shift).to(tl.float32, bitcast=True)


@triton.jit
def _column_maxima(row, vocab: tl.constexpr, parts: tl.constexpr, columns: tl.constexpr, shift: tl.constexpr):
    """The largest ordered integer of each column over all parts."""
    tokens = tl.arange(0, columns)
    maxima = tl.full([columns], _LEAST >> shift, tl.int32)
    for part in range(parts):
        maxima = tl.maximum(maxima, _ordered(_logits(row, part, tokens, vocab, columns), shift))
    return maxima


@triton.jit
def _kth_of(keys, k, high, columns: tl.constexpr, shift: tl.constexpr):
    """The k-th largest of the ordered integers `keys` int32 [columns], which all are under `high`, int64; the
    least one where there are fewer."""
    low = tl.full([], _LEAST >> shift, tl.int64)
    while (high - low > 1) & (k <= columns):
        middle = (high + low) >> 1
        enough = tl.sum((keys >= middle.to(tl.int32)).to(tl.int32), 0) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return low


@triton.jit
def _counts_from(
    row,
    peaks,
    first,
    second,
    third,
    vocab: tl.constexpr,
    parts: tl.constexpr,
    columns: tl.constexpr,
    shift: tl.constexpr,
):
    """How many logits are at least each of three ascending ordered integers."""
    tokens = tl.arange(0, columns)
    at_1 = tl.zeros([columns], tl.int32)
    at_2 = tl.zeros([columns], tl.int32)
    at_3 = tl.zeros([columns], tl.int32)
    for part in range(parts):
        if _ordered(tl.load(peaks + part), shift) >= first:
            keys = _ordered(_logits(row, part, tokens, vocab, columns), shift)
            at_1 += (keys >= first).to(tl.int32)
            at_2 += (keys >= second).to(tl.int32)
            at_3 += (keys >= third).to(tl.int32)
    return tl.sum(at_1, 0), tl.sum(at_2, 0), tl.sum(at_3, 0)


@triton.jit
def _mass_from(
    row,
    peaks,
    edge,
    peak,
    scale,
    vocab: tl.constexpr,
    parts: tl.constexpr,
    columns: tl.constexpr,
    shift: tl.constexpr,
):
    """How many logits are at least the ordered integer `edge`, and their mass over that of `peak`."""
    tokens = tl.arange(0, columns)
    count = tl.zeros([columns], tl.int32)
    mass = tl.zeros([columns], tl.float32)
    for part in range(parts):
        if _ordered(tl.load(peaks + part), shift) >= edge:
            x = _logits(row, part, tokens, vocab, columns)
            above = _ordered(x, shift) >= edge
            count += above.to(tl.int32)
            mass += tl.where(above, tl.exp2((x - peak) * scale), 0.0)
    return tl.sum(count, 0), tl.sum(mass, 0)
