"""The ratio test of speculative sampling along chains of drafts (Leviathan et al. 2023, arXiv 2211.17192,
algorithm 1), with the noise of `kernels.noise`.

Draft x of a position is accepted with probability min(1, p(x) / q(x)). The first that is not is replaced by a
draw from norm(max(0, p - q)); behind a chain that is accepted whole stands a draw from the target's last row.
"""

import triton
import triton.language as tl
from torch import Tensor

from ..speculated import Accepted, ChainKeys
from ..work import power_of_two
from .build import Build, Ceiling
from .launch import on_grid
from .noise import exponential, uniform

COLUMNS = 2048
WARPS = 8

_NO_TOKEN = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _residual(target, drafted, draft, at, inside, tests, subtracts: tl.constexpr):
    """The weights that a row is drawn from: the target's, less the draft's where the row `tests` a draft."""
    weight = tl.load(target + at, mask=inside, other=0.0)
    if subtracts:
        own = tl.load(drafted + at, mask=inside & tests, other=0.0)
    else:
        own = tl.where((at == draft) & tests, 1.0, 0.0)
    return tl.where(tests, tl.maximum(weight - own, 0.0), weight)


@triton.jit
def _drawn(
    target,
    drafted,
    draft,
    tests,
    first,
    second,
    vocab: tl.constexpr,
    columns: tl.constexpr,
    subtracts: tl.constexpr,
):
    """The winner of the race of a row's weights, of equal ones the lowest; whether any weight is above 0."""
    column = tl.arange(0, columns)
    best = tl.full([columns], -1.0, tl.float32)
    winners = tl.full([columns], _NO_TOKEN, tl.int32)
    heaviest = tl.zeros([columns], tl.float32)
    for start in range(0, vocab, columns):
        at = start + column
        inside = at < vocab
        weight = _residual(target, drafted, draft, at, inside, tests, subtracts)
        value = tl.where(inside, weight / exponential(first, second, at), -1.0)
        wins = value > best
        best = tl.where(wins, value, best)
        winners = tl.where(wins, at, winners)
        heaviest = tl.maximum(heaviest, weight)
    winner = tl.min(tl.where(best == tl.max(best, 0), winners, _NO_TOKEN), 0)
    return tl.where(winner < vocab, winner, 0), tl.max(heaviest, 0) > 0.0


@triton.jit(do_not_specialize=["count"])
def verify_chains(
    target,
    drafted,
    drafts,
    sizes,
    accept_keys,
    residual_keys,
    token_keys,
    tokens,
    lengths,
    count,
    longest: tl.constexpr,
    vocab: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    subtracts: tl.constexpr,
):
    """Verify one chain per program."""
    chain = tl.program_id(0).to(tl.int64)
    size = tl.load(sizes + chain)
    place = tl.arange(0, block)
    inside = place < size
    draft = tl.load(drafts + chain * longest + place, mask=inside, other=0)
    rows = target + chain * (longest + 1) * vocab
    own_rows = drafted + chain * longest * vocab
    at = place.to(tl.int64) * vocab + draft
    p = tl.load(rows + at, mask=inside, other=0.0)
    q = tl.full([block], 1.0, tl.float32)
    if subtracts:
        q = tl.load(own_rows + at, mask=inside, other=1.0)
    keys = accept_keys + chain * longest + place
    first = tl.load(keys, mask=inside, other=0)
    second = tl.load(keys + count * longest, mask=inside, other=0)
    refused = (uniform(first, second, place * 0) * q < p) == 0
    accepted = tl.min(tl.where(inside & refused, place, size), 0)

    tests = accepted < size
    row = accepted.to(tl.int64)
    tested = tl.minimum(row, longest - 1)
    own_key = residual_keys + chain * longest + tested
    key = tl.where(tests, tl.load(own_key), tl.load(token_keys + chain))
    other_key = tl.where(tests, tl.load(own_key + count * longest), tl.load(token_keys + count + chain))
    x = tl.load(drafts + chain * longest + tested)
    at_row, own_row = rows + row * vocab, own_rows + tested * vocab
    token, any_weight = _drawn(at_row, own_row, x, tests, key, other_key, vocab, columns, subtracts)
    if tests & (any_weight == 0):  # p is q but for rounding
        token, any_weight = _drawn(at_row, own_row, x, False, key, other_key, vocab, columns, subtracts)
    found = tl.where(place < accepted, draft, tl.where(place == accepted, token, -1))
    tl.store(tokens + chain * (longest + 1) + place, found, mask=place <= longest)
    tl.store(lengths + chain, accepted + 1)


def chain_verify(
    target: Tensor,
    drafted: Tensor | None,
    drafts: Tensor,
    sizes: Tensor,
    keys: ChainKeys,
    *,
    out: Accepted | None = None,
    columns: int = COLUMNS,
) -> Accepted:
    """What each of `batch` chains of `n` drafts at most, n > 0, leaves.

    `target` fp32 [batch, n + 1, vocab] holds the target's probabilities at each draft's position and behind
    the last; `drafted` fp32 [batch, n, vocab] those that the drafts were drawn from, None for drafts chosen
    without chance. `drafts` int32 [batch, n], of which chain i has the first `sizes[i]`, int32 [batch]. All
    are contiguous. `columns`, a power of 2, are read at once; `out` is made where it is not given. Nothing
    waits for the device.
    """
    batch, longest = drafts.shape
    vocab = target.shape[-1]
    assert target.shape == (batch, longest + 1, vocab)
    assert drafted is None or drafted.shape == (batch, longest, vocab)
    assert all(one.is_contiguous() for one in (target, drafted, drafts, *keys) if one is not None)
    out = Accepted.empty(batch, longest, target.device) if out is None else out
    if batch:
        on_grid(verify_chains, batch)(
            target,
            target if drafted is None else drafted,
            drafts,
            sizes,
            *keys,
            out.tokens,
            out.lengths,
            batch,
            longest=longest,
            vocab=vocab,
            columns=columns,
            block=power_of_two(longest + 1),
            subtracts=drafted is not None,
            num_warps=WARPS,
        )
    return out


def builds() -> list[Build]:
    """Chains of 4 drafts over Llama 3's vocabulary, with and without the draft's distribution."""
    whole = ("drafts", "sizes", "accept_keys", "residual_keys", "token_keys", "tokens", "lengths")
    return [
        Build(
            name=f"verify_chains {'q' if subtracts else 'point mass'}",
            kernel=verify_chains,
            signature={
                **dict.fromkeys(("target", "drafted"), "*fp32"),
                **dict.fromkeys(whole, "*i32"),
                "count": "i32",
            },
            constants={"longest": 4, "vocab": 128256, "columns": COLUMNS, "block": 8, "subtracts": subtracts},
            ceilings=dict.fromkeys((80, 90), Ceiling(registers=80, shared_bytes=64)),
            warps=WARPS,
        )
        for subtracts in (True, False)
    ]
