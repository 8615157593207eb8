"""Attention of work items over paged KV: partial results per slot, which `merge_states` adds up.

One program takes items of a plan (`kernels/work.py`) one after the other, for one KV head: the grid is
constant and the number of items is read on the device, so that a captured CUDA graph serves every plan. The
query heads of a KV head are rows of one product; all rows of an item share each load of a key or value.

The loop runs over whole pages, a page per step, and carries the id of the next page: with the id loaded in
the step that uses it, Triton divides its stages over two levels of loads and keeps one tile in flight.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ..work import PAGE_SIZES, Tiling, power_of_two
from .build import Build, Ceiling

LOG2_E = 1.4426950408889634
_SHARED_BYTES = 98304
"""Shared memory that the tiles of keys and values in flight may take in one program."""


@triton.jit
def tree_attention_kernel(
    query,
    keys,
    values,
    partial,
    partial_lse,
    count,
    items,
    row_of_slot,
    limit,
    low,
    bits,
    bit_base,
    pages,
    scale_log2,
    cap_log2,
    row_stride,
    items_stride,
    group: tl.constexpr,
    padded: tl.constexpr,
    kv_heads: tl.constexpr,
    dim: tl.constexpr,
    padded_dim: tl.constexpr,
    page: tl.constexpr,
    rows: tl.constexpr,
    limited: tl.constexpr,
    windowed: tl.constexpr,
    treed: tl.constexpr,
    capped: tl.constexpr,
    tma: tl.constexpr,
):
    """`partial` fp32 [slots, heads, dim] and `partial_lse` fp32 [slots, heads], base 2, of the items.

    `query` [rows, heads, dim] with `row_stride` elements between rows; `keys` and `values` [blocks,
    kv_heads, page, dim] of its dtype, or with `tma` descriptors of them as [-1, dim] in tiles of [page,
    padded_dim]. The arrays are those of `WorkArrays` for one class of items, `items` with `items_stride`
    entries per field; `rows` are the query rows of an item. Scores are `scale_log2 * q.k`; where `capped`,
    `cap_log2 * tanh(x)` with `scale_log2 * q.k` as the exponent of 2 that gives `exp(2x)` (see `scales`).

    A slot that sees nothing gets 0 and a log-sum-exp of -inf. What lies behind an item's last key in its
    page must be finite.
    """
    heads: tl.constexpr = kv_heads * group
    kv_head = tl.program_id(1)
    number = tl.load(count)
    lane = tl.arange(0, rows * padded)
    within = tl.arange(0, page)
    column = tl.arange(0, padded_dim)
    head = kv_head * group + lane % padded
    item = tl.program_id(0)
    while item < number:
        first_slot = tl.load(items + item)
        slots = tl.load(items + items_stride + item)
        first_page = tl.load(items + 2 * items_stride + item)
        length = tl.load(items + 3 * items_stride + item)
        slot = first_slot + lane // padded
        real = lane // padded < slots
        row = tl.load(row_of_slot + slot, mask=real, other=0).to(tl.int64)
        stored = real & (lane % padded < group)
        cells = stored[:, None] & (column < dim)[None, :]
        q = tl.load(
            query + row[:, None] * row_stride + head[:, None] * dim + column[None, :], mask=cells, other=0.0
        )
        if limited or windowed or treed:
            first_key = tl.load(items + 4 * items_stride + item)
        if limited:
            upper = tl.load(limit + slot, mask=real, other=0)
        if windowed:
            lower = tl.load(low + slot, mask=real, other=0)
        if treed:
            seen = tl.load(bits + slot, mask=real, other=0)
            base = tl.load(bit_base + slot, mask=real, other=0)
        peak = tl.full([rows * padded], float("-inf"), tl.float32)
        weight = tl.zeros([rows * padded], tl.float32)
        value = tl.zeros([rows * padded, padded_dim], tl.float32)
        following = tl.load(pages + first_page)
        for start in range(0, length, page):
            block = following.to(tl.int64) * kv_heads + kv_head
            following = tl.load(pages + first_page + start // page + 1)
            inside = start + within < length
            if tma:
                k = keys.load([(block * page).to(tl.int32), 0]).T
            else:
                place = block * (page * dim) + within * dim
                k_mask = inside[None, :]
                if padded_dim != dim:
                    k_mask = k_mask & (column < dim)[:, None]
                k = tl.load(keys + place[None, :] + column[:, None], mask=k_mask, other=0.0)
            scores = tl.dot(q, k, input_precision="ieee") * scale_log2
            if capped:
                # tanh by one exponential, whose overflow gives the limit.
                scores = cap_log2 * (1.0 - 2.0 / (1.0 + tl.exp2(scores)))
            visible = inside[None, :]
            if limited or windowed or treed:
                position = first_key + start + within
            if limited:
                visible = visible & (position[None, :] < upper[:, None])
            if windowed:
                visible = visible & (position[None, :] >= lower[:, None])
            if treed:
                bit = position[None, :] - base[:, None]
                shift = tl.minimum(tl.maximum(bit, 0), 63).to(tl.int64)
                visible = visible & ((bit < 0) | (((seen[:, None] >> shift) & 1) != 0))
            scores = tl.where(visible, scores, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, 1))
            # A row that has seen nothing yet keeps a peak of -inf, from which nothing may be subtracted.
            origin = tl.where(higher == float("-inf"), 0.0, higher)
            p = tl.exp2(scores - origin[:, None])
            fade = tl.exp2(peak - origin)
            if tma:
                v = values.load([(block * page).to(tl.int32), 0])
            else:
                v_mask = inside[:, None]
                if padded_dim != dim:
                    v_mask = v_mask & (column < dim)[None, :]
                v = tl.load(values + place[:, None] + column[None, :], mask=v_mask, other=0.0)
            weight = weight * fade + tl.sum(p, 1)
            value = tl.dot(p.to(v.dtype), v, value * fade[:, None], input_precision="ieee")
            peak = higher
        divisor = tl.where(weight == 0.0, 1.0, weight)
        target = slot.to(tl.int64) * heads + head
        tl.store(partial + target[:, None] * dim + column[None, :], value / divisor[:, None], mask=cells)
        lse = tl.where(weight == 0.0, float("-inf"), peak + tl.log2(divisor))
        tl.store(partial_lse + target, lse, mask=stored)
        item += tl.num_programs(0)


def launch(
    query: Tensor,
    kv: Tensor,
    partial: Tensor,
    partial_lse: Tensor,
    arrays: dict[str, Tensor],
    kind: int,
    shape: Tiling,
    programs: int,
    *,
    scale: float,
    softcap: float | None,
    limited: bool,
    windowed: bool,
    treed: bool,
    tma: bool = False,
) -> None:
    """Attend the items of class `kind` with `programs` programs per KV head.

    `kv` [2, blocks, kv_heads, block_size, head_dim], keys and values contiguous, of the dtype of `query`
    [rows, heads, head_dim], whose heads lie next to each other; `partial` and `partial_lse` as the kernel
    has them; `arrays` are the tensors of `WorkArrays` by name. `tma` needs compute capability 9.0 and
    `head_dim` elements of a multiple of 16 bytes.
    """
    _, _, kv_heads, page, dim = kv.shape
    if page not in PAGE_SIZES:
        raise ValueError(f"block size {page} is not one of {PAGE_SIZES}")
    if query.dtype != kv.dtype or query.stride(1) != dim or query.stride(2) != 1:
        raise ValueError("queries must be of the KV's dtype, and their heads contiguous")
    padded_dim = max(16, power_of_two(dim))
    items = arrays["items"][kind]
    keys: Any = kv[0]
    values: Any = kv[1]
    if tma:
        from triton.tools.tensor_descriptor import TensorDescriptor

        keys, values = (
            TensorDescriptor.from_tensor(part.view(-1, dim), [page, padded_dim]) for part in (kv[0], kv[1])
        )
    rows = shape.rows(kind)
    kernel: Any = tree_attention_kernel[(programs, kv_heads)]
    kernel(
        query,
        keys,
        values,
        partial,
        partial_lse,
        arrays["counts"][kind],
        items,
        arrays["row_of_slot"],
        arrays["limit"],
        arrays["low"],
        arrays["bits"],
        arrays["bit_base"],
        arrays["pages"],
        *scales(scale, softcap),
        query.stride(0),
        items.stride(0),
        group=shape.group,
        padded=shape.padded,
        kv_heads=kv_heads,
        dim=dim,
        padded_dim=padded_dim,
        page=page,
        rows=rows,
        limited=limited,
        windowed=windowed,
        treed=treed,
        capped=softcap is not None,
        tma=tma,
        num_warps=warps(rows * shape.padded, page, padded_dim),
        num_stages=stages(page * padded_dim * kv.element_size()),
    )


def scales(scale: float, softcap: float | None) -> tuple[float, float]:
    """The kernel's `scale_log2` and `cap_log2`: a capped score s is `c * tanh(s / c)`, whose exponential is
    `exp2(2 * log2(e) * s / c)`."""
    if softcap is None:
        return scale * LOG2_E, 0.0
    return 2.0 * LOG2_E * scale / softcap, softcap * LOG2_E


def warps(lanes: int, page: int, padded_dim: int) -> int:
    """Warps of a program: four spill registers where a product of `lanes` rows is large."""
    return 8 if lanes * padded_dim >= 64 * 256 or lanes * page >= 64 * 128 else 4


def stages(tile_bytes: int) -> int:
    """Stages of the loop for tiles of keys of `tile_bytes`: one less than these are in flight, of keys and of
    values."""
    return 3 if 4 * tile_bytes <= _SHARED_BYTES else 2


class _Form(NamedTuple):
    """A build: rows of an item (of 4 query heads per KV head), block size, head dimension, whether rows have
    masks, whether keys come by TMA; and the ceilings (registers, bytes of shared memory) by capability."""

    rows: int
    page: int
    dim: int
    masked: bool
    tma: bool
    ceilings: Mapping[int, tuple[int, int]]


_FORMS = (
    _Form(4, 16, 128, False, False, {80: (112, 20992), 90: (112, 20992)}),
    _Form(4, 16, 128, True, False, {80: (128, 20992), 90: (128, 20992)}),
    _Form(4, 32, 128, False, False, {80: (128, 37888), 90: (128, 37888)}),
    _Form(4, 32, 128, True, False, {80: (128, 37888), 90: (128, 37888)}),
    _Form(4, 64, 128, False, False, {80: (168, 71680), 90: (168, 71680)}),
    _Form(4, 64, 128, True, False, {80: (208, 71680), 90: (168, 71680)}),
    _Form(4, 32, 64, False, False, {80: (112, 19456), 90: (112, 19456)}),
    _Form(16, 32, 128, False, False, {80: (208, 53248), 90: (168, 65536)}),
    _Form(16, 32, 128, True, False, {80: (255, 53248), 90: (224, 65536)}),
    _Form(16, 64, 128, False, False, {80: (255, 90112), 90: (255, 114688)}),
    _Form(16, 64, 128, True, False, {80: (255, 90112), 90: (255, 114688)}),
    _Form(16, 64, 64, False, False, {80: (208, 40960), 90: (168, 57344)}),
    _Form(4, 32, 128, False, True, {90: (96, 38400)}),
    _Form(4, 64, 128, False, True, {90: (112, 72192)}),
    _Form(4, 64, 128, True, True, {90: (112, 72192)}),
    _Form(16, 64, 128, False, True, {90: (184, 115200)}),
    _Form(16, 64, 128, True, True, {90: (232, 115200)}),
)


def builds() -> list[Build]:
    """The kernel in bf16 for 8 KV heads of 4 query heads."""
    return [_build(form) for form in _FORMS]


def _build(form: _Form) -> Build:
    tile = f"tensordesc<bf16[{form.page},{form.dim}]>" if form.tma else "*bf16"
    padded = 4
    lanes = form.rows * padded
    names = ("", " masked")[form.masked] + ("", " TMA")[form.tma]
    return Build(
        name=f"tree_attention M{lanes} page {form.page} D{form.dim}{names}",
        kernel=tree_attention_kernel,
        signature={
            "query": "*bf16",
            "keys": tile,
            "values": tile,
            "partial": "*fp32",
            "partial_lse": "*fp32",
            "count": "*i32",
            "items": "*i32",
            "row_of_slot": "*i32",
            "limit": "*i32",
            "low": "*i32",
            "bits": "*i64",
            "bit_base": "*i32",
            "pages": "*i32",
            "scale_log2": "fp32",
            "cap_log2": "fp32",
            "row_stride": "i32",
            "items_stride": "i32",
        },
        constants={
            "group": 4,
            "padded": padded,
            "kv_heads": 8,
            "dim": form.dim,
            "padded_dim": form.dim,
            "page": form.page,
            "rows": form.rows,
            "limited": form.masked,
            "windowed": False,
            "treed": form.masked,
            "capped": False,
            "tma": form.tma,
        },
        ceilings={
            capability: Ceiling(registers=registers, shared_bytes=shared_bytes)
            for capability, (registers, shared_bytes) in form.ceilings.items()
        },
        warps=warps(lanes, form.page, form.dim),
        stages=stages(form.page * form.dim * 2),
        divisible=("row_stride", "items_stride"),
        wants_async=True,
        narrow_async=0,
        wants_hgmma=lanes >= 64,
    )
