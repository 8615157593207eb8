"""Rotation of queries and keys (RoFormer, Su et al. 2021, in the halves of GPT-NeoX) and the write of keys
and values to the paged pool, in one pass over a step's rows."""

import triton
import triton.language as tl
from torch import Tensor

from ..work import power_of_two
from .build import Build, Ceiling
from .launch import on_grid, tiles

HEADS_PER_PROGRAM = 8
WARPS = 2


@triton.jit(do_not_specialize=["stored"])
def rope_kv_write(
    qkv,
    cosine,
    sine,
    positions,
    slots,
    query_norm,
    key_norm,
    pool,
    stored,
    row_stride,
    eps,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    half: tl.constexpr,
    block: tl.constexpr,
    group: tl.constexpr,
    norms: tl.constexpr,
):
    """One program works on up to `group` heads of one kind (queries, keys or values, in this order) of one
    row. Everything is fp32 and rounded once. A slot below 0 is padding: nothing is written for it."""
    row = tl.program_id(0).to(tl.int64)
    query_groups: tl.constexpr = (heads + group - 1) // group
    key_groups: tl.constexpr = (kv_heads + group - 1) // group
    part = tl.program_id(1)
    is_query = part < query_groups
    is_value = part >= query_groups + key_groups
    first = part * group
    count = heads
    start = 0
    norm = query_norm
    if not is_query:
        first = (part - query_groups) * group
        count = kv_heads
        start = heads
        norm = key_norm
        if is_value:
            first = (part - query_groups - key_groups) * group
            start = heads + kv_heads
    head = first + tl.arange(0, group)
    feature = tl.arange(0, block)
    inside = (head < count)[:, None] & (feature < half)[None, :]
    at = qkv + row * row_stride + (start + head)[:, None] * (2 * half) + feature[None, :]
    low = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(at + half, mask=inside, other=0.0).to(tl.float32)
    if not is_value:
        if norms:
            squares = tl.sum(low * low + high * high, 1)
            scale = tl.rsqrt(squares / (2 * half) + eps)[:, None]
            known = feature < half
            low *= scale * tl.load(norm + feature, mask=known, other=0.0).to(tl.float32)[None, :]
            high *= scale * tl.load(norm + half + feature, mask=known, other=0.0).to(tl.float32)[None, :]
        table = tl.load(positions + row) * (2 * half) + feature
        turn = tl.load(cosine + table, mask=feature < half, other=0.0).to(tl.float32)[None, :]
        # The table's first half of sines is negated; the second is plain.
        lift = tl.load(sine + table + half, mask=feature < half, other=0.0).to(tl.float32)[None, :]
        turned = low * turn - high * lift
        high = high * turn + low * lift
        low = turned
    kind = qkv.dtype.element_ty
    if is_query:
        tl.store(at, low.to(kind), mask=inside)
        tl.store(at + half, high.to(kind), mask=inside)
    else:
        plane = start - heads + head
        known = (head < count) & (row < stored)
        slot = tl.load(slots + row * (2 * kv_heads) + plane, mask=known, other=-1)
        to = pool + slot[:, None] * (2 * half) + feature[None, :]
        kept = inside & (slot >= 0)[:, None]
        tl.store(to, low.to(kind), mask=kept)
        tl.store(to + half, high.to(kind), mask=kept)


def rotate_and_store(
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    positions: Tensor,
    slots: Tensor,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    pool: Tensor,
    heads: int,
) -> None:
    """Rotate the queries of `qkv` [rows, heads + 2 * kv_heads, head_dim] in place and write rotated keys, and
    values, of its first rows to `pool` [2, blocks, kv_heads, block_size, head_dim], contiguous, of one dtype
    with `qkv`. The keys in `qkv` stay as they are.

    `cosine` and `sine` are tables [positions, head_dim] with the first half of sines negated; `positions` is
    int64 [rows]; `slots` int64 [stored * 2 * kv_heads] as in `KvCache.slots`, below 0 where nothing is to be
    written. `norms` are weights [head_dim] of a norm of queries and of keys before the rotation (Qwen3)."""
    rows, packed, dim = qkv.shape
    kv_heads = (packed - heads) // 2
    assert qkv.stride()[1:] == (dim, 1)
    assert pool.is_contiguous()
    assert pool.dtype == qkv.dtype
    groups = tiles(heads, HEADS_PER_PROGRAM) + 2 * tiles(kv_heads, HEADS_PER_PROGRAM)
    query_norm, key_norm = (cosine, cosine) if norms is None else norms
    if rows:
        on_grid(rope_kv_write, rows, groups)(
            qkv,
            cosine,
            sine,
            positions,
            slots,
            query_norm,
            key_norm,
            pool,
            slots.numel() // (2 * kv_heads),
            qkv.stride(0),
            eps,
            heads=heads,
            kv_heads=kv_heads,
            half=dim // 2,
            block=power_of_two(dim // 2),
            group=HEADS_PER_PROGRAM,
            norms=norms is not None,
            num_warps=WARPS,
            num_stages=1,
        )


def _build(heads: int, kv_heads: int, head_dim: int, *, norms: bool) -> Build:
    signature = {
        **dict.fromkeys(("qkv", "cosine", "sine", "query_norm", "key_norm", "pool"), "*bf16"),
        **dict.fromkeys(("positions", "slots"), "*i64"),
        **dict.fromkeys(("stored", "row_stride"), "i32"),
        "eps": "fp32",
    }
    return Build(
        name=f"rope_kv_write {heads}/{kv_heads}x{head_dim}{' norms' if norms else ''}",
        kernel=rope_kv_write,
        signature=signature,
        constants={
            "heads": heads,
            "kv_heads": kv_heads,
            "half": head_dim // 2,
            "block": power_of_two(head_dim // 2),
            "group": HEADS_PER_PROGRAM,
            "norms": norms,
        },
        ceilings=dict.fromkeys((80, 90), Ceiling(registers=48 if norms else 32, shared_bytes=128)),
        warps=WARPS,
        stages=1,
        divisible=("row_stride",),
    )


def builds() -> list[Build]:
    """The heads of Llama 3 8B and of Qwen3 1.7B and 8B."""
    return [
        _build(32, 8, 128, norms=False),
        _build(32, 8, 128, norms=True),
        _build(14, 2, 64, norms=False),
    ]
