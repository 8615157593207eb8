"""The work items of a plan in torch, for any device and dtype: the same items, slots and merge as the Triton
kernels, one item at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..work import FIRST_KEY, FIRST_PAGE, FIRST_SLOT, KEYS, SLOTS, WorkPlan


class Partials(NamedTuple):
    """Results per slot: `out` [slots, heads, head_dim] and the base-2 log-sum-exp `lse` [slots, heads] of its
    scores; 0 and -inf for a slot that sees nothing. fp32, or fp64 of operands in fp64."""

    out: Tensor
    lse: Tensor


def attend_items(
    query: Tensor, kv: Tensor, plan: WorkPlan, *, scale: float, softcap: float | None
) -> Partials:
    """All items of `plan` with `query` [rows, heads, head_dim] over `kv` [2, blocks, kv_heads, block_size,
    head_dim]. Scores are `scale * q.k`, with a `softcap` c then `c * tanh(scores / c)`."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    heads, dim = query.shape[1:]
    partials = Partials(
        torch.zeros(plan.slots, heads, dim, dtype=dtype, device=query.device),
        torch.full((plan.slots, heads), float("-inf"), dtype=dtype, device=query.device),
    )
    for kind, count in enumerate(plan.items):
        for item in plan.arrays.items[kind, :, :count].T.tolist():
            _attend_item(partials, query, kv, plan, item, scale, softcap)
    return partials


def _attend_item(
    partials: Partials,
    query: Tensor,
    kv: Tensor,
    plan: WorkPlan,
    item: list[int],
    scale: float,
    softcap: float | None,
) -> None:
    length, first_page = item[KEYS], item[FIRST_PAGE]
    if not length:
        return
    _, _, kv_heads, size, dim = kv.shape
    dtype, device = partials.out.dtype, query.device
    slots = slice(item[FIRST_SLOT], item[FIRST_SLOT] + item[SLOTS])
    rows = torch.from_numpy(plan.arrays.row_of_slot[slots]).to(device)
    pages = torch.from_numpy(plan.arrays.pages[first_page : first_page - (-length // size)]).to(device)
    keys, values = kv[:, pages].to(dtype).transpose(2, 3).reshape(2, -1, kv_heads, dim)[:, :length]
    asked = query[rows].to(dtype).view(item[SLOTS], kv_heads, -1, dim)
    scores = torch.einsum("shgd,khd->shgk", asked, keys) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    visible = _visible(plan, slots, item[FIRST_KEY], length).to(device)
    scores = scores.masked_fill(~visible[:, None, None, :], float("-inf"))
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - lse.clamp(min=torch.finfo(dtype).min)[..., None])
    out = torch.einsum("shgk,khd->shgd", weights, values)
    partials.out[slots] = out.flatten(1, 2)
    partials.lse[slots] = lse.flatten(1) / torch.log(torch.tensor(2.0, dtype=dtype)).item()


def _visible(plan: WorkPlan, slots: slice, first_key: int, length: int) -> Tensor:
    """Which keys each slot sees, bool [slots, keys]; only the masks that the plan has are looked at."""
    arrays = plan.arrays
    position = torch.arange(first_key, first_key + length)[None]
    visible = torch.ones(slots.stop - slots.start, length, dtype=torch.bool)
    if plan.limited:
        visible &= position < torch.from_numpy(arrays.limit[slots])[:, None]
    if plan.windowed:
        visible &= position >= torch.from_numpy(arrays.low[slots])[:, None]
    if plan.treed:
        bit = position - torch.from_numpy(arrays.bit_base[slots])[:, None]
        seen = torch.from_numpy(arrays.bits[slots])[:, None] >> bit.clamp(0, 63)
        visible &= (bit < 0) | ((seen & 1) != 0)
    return visible


def merge_states(partials: Partials, plan: WorkPlan) -> Tensor:
    """Per row the mean of its slots' results weighted by 2 to their log-sum-exp, [rows, heads, head_dim]; 0
    for a row that has seen nothing."""
    device = partials.out.device
    merged = int(plan.arrays.row_ptr[plan.rows])
    slots = torch.from_numpy(plan.arrays.row_slots[:merged]).to(device)
    rows = torch.from_numpy(plan.arrays.row_of_slot).to(device)[slots].long()
    lse = partials.lse[slots]
    where = rows[:, None].expand_as(lse)
    peak = torch.full((plan.rows, lse.shape[1]), float("-inf"), dtype=lse.dtype, device=device)
    peak = peak.scatter_reduce(0, where, lse, "amax").clamp(min=torch.finfo(lse.dtype).min)
    weights = torch.exp2(lse - peak[rows])
    total = torch.zeros_like(peak).index_add_(0, rows, weights)
    out = partials.out.new_zeros(plan.rows, *partials.out.shape[1:])
    out.index_add_(0, rows, weights[..., None] * partials.out[slots])
    return out / torch.where(total == 0, 1.0, total)[..., None]
