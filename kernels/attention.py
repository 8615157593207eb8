"""Attention over paged KV in torch: runs an `AttentionPlan` with a few batched products per layer.

KV of a layer is [2, blocks, kv_heads, block_size, head_dim]: a (block, head) pair is one contiguous run, so
gathering the blocks of an item gives operands that need no further copy. Query heads of one KV head are rows
of the same product; KV is never repeated. Softmax is fp32; partial results carry the logarithm of their
weights' sum and are merged by it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .plan import AttentionPlan, Level, RowSlab, Tile
from .scratch import Scratch


@dataclass(slots=True)
class _State:
    """Attention of some rows over the keys seen so far, and the log-sum-exp of their scores; fp32 [rows,
    kv_heads, group, head_dim] and [rows, kv_heads, group]."""

    out: Tensor
    lse: Tensor


@dataclass(slots=True)
class _PreparedSlab:
    source: RowSlab
    index: Tensor
    mask: Tensor


@dataclass(slots=True)
class _PreparedTile:
    source: Tile
    index: Tensor


@dataclass(slots=True)
class PreparedPlan:
    """A plan with the gather indices and masks of its items; valid for every layer of one step."""

    rows: int
    slabs: list[_PreparedSlab]
    tiles: list[_PreparedTile]


class PagedAttention:
    """The attention of one model, for one step at a time: `prepare` a plan, then `run` it for each layer."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int, block_size: int, scale: float) -> None:
        self._kv_heads = kv_heads
        self._group = heads // kv_heads
        self._head_dim = head_dim
        self._block_size = block_size
        self._scale = scale
        self._scratch = Scratch()

    def prepare(self, plan: AttentionPlan, pool_blocks: int, device: torch.device) -> PreparedPlan:
        """Index tensors and masks that all layers of the step share, on `device`."""
        slabs = [
            _PreparedSlab(
                slab,
                self._gather_index(slab.blocks, pool_blocks).to(device),
                slab.mask.repeat_interleave(self._kv_heads, 0)[:, None].to(device),
            )
            for slab in plan.slabs
        ]
        tiles = [
            _PreparedTile(tile, self._gather_index(tile.blocks[None], pool_blocks).to(device))
            for tile in plan.tiles
        ]
        return PreparedPlan(plan.rows, slabs, tiles)

    def run(self, query: Tensor, kv: Tensor, plan: PreparedPlan, out: Tensor) -> None:
        """Attend with `query` [rows, heads, head_dim] over the layer's `kv`; write the first rows of `out`
        [.., heads * head_dim]. `query` and `kv` have one dtype."""
        grouped = query.view(query.shape[0], self._kv_heads, self._group, self._head_dim)
        pool = kv.view(-1, self._block_size * self._head_dim)
        target = out.view(out.shape[0], self._kv_heads, self._group, self._head_dim)
        if not plan.tiles:
            for slab in plan.slabs:
                rows = slab.source.rows
                target[rows] = self._row_items(grouped[rows], pool, slab).out
            return
        state = self._empty_state(plan.rows)
        for slab in plan.slabs:
            rows = slab.source.rows
            part = self._row_items(grouped[rows], pool, slab)
            state.out[rows], state.lse[rows] = part.out, part.lse
        for tile in plan.tiles:
            rows = tile.source.rows
            _merge(state, rows, self._tile(grouped[rows], pool, tile))
        target[: plan.rows] = state.out

    def _gather_index(self, blocks: Tensor, pool_blocks: int) -> Tensor:
        """Rows of the flattened pool [2 * pool_blocks * kv_heads, ..] for `blocks` [items, n]: [2 * items *
        kv_heads * n], the keys of all items, then the values."""
        heads = torch.arange(self._kv_heads)
        keys = blocks[:, None, :] * self._kv_heads + heads[:, None]
        return torch.stack((keys, keys + pool_blocks * self._kv_heads)).reshape(-1)

    def _empty_state(self, rows: int) -> _State:
        shape = (rows, self._kv_heads, self._group)
        out = self._scratch.take("out", (*shape, self._head_dim), torch.float32).zero_()
        return _State(out, self._scratch.take("lse", shape, torch.float32).fill_(float("-inf")))

    def _row_items(self, query: Tensor, pool: Tensor, slab: _PreparedSlab) -> _State:
        """All keys of the slab's rows: every item on its own, then the items of each row added up in the
        order of their keys, so that a row's bits do not depend on what else the slab holds."""
        source = slab.source
        items, keys = source.mask.shape
        kv = self._gather(pool, slab.index, items * self._kv_heads, keys)
        if items > query.shape[0]:
            query = query.index_select(0, slab.source.item_rows)
        part = self._attend(query.reshape(-1, self._group, self._head_dim), kv, slab.mask)
        out = part.out.view(items, self._kv_heads, self._group, self._head_dim)
        lse = part.lse.view(items, self._kv_heads, self._group)
        first, *others = source.levels
        if not others:
            return _State(out, lse)
        peak = lse[: first.last].clone()
        for level in others:
            _fold(torch.maximum, peak, level, lse)
        weight = lse.sub_(peak.index_select(0, source.item_rows)).exp_()
        out.mul_(weight.unsqueeze(-1))
        total, summed = weight[: first.last], out[: first.last]
        for level in others:
            _fold(torch.add, total, level, weight)
            _fold(torch.add, summed, level, out)
        return _State(summed.div_(total.unsqueeze(-1)), total.log_().add_(peak))

    def _tile(self, query: Tensor, pool: Tensor, tile: _PreparedTile) -> _State:
        """One run of keys for consecutive rows, one product per KV head."""
        rows, keys = query.shape[0], tile.source.blocks.numel() * self._block_size
        kv = self._gather(pool, tile.index, self._kv_heads, keys)
        packed = query.transpose(0, 1).reshape(self._kv_heads, rows * self._group, self._head_dim)
        mask = tile.source.mask
        part = self._attend(packed, kv, None if mask is None else mask.repeat_interleave(self._group, 0))
        shape = (self._kv_heads, rows, self._group)
        out = part.out.view(*shape, self._head_dim)
        return _State(out.transpose(0, 1), part.lse.view(shape).transpose(0, 1))

    def _gather(self, pool: Tensor, index: Tensor, batch: int, keys: int) -> Tensor:
        """Keys and values of the indexed (block, head) runs: [2, batch, keys, head_dim]."""
        kv = self._scratch.take("kv", (index.numel(), pool.shape[1]), pool.dtype)
        torch.index_select(pool, 0, index, out=kv)
        return kv.view(2, batch, keys, self._head_dim)

    def _attend(self, query: Tensor, kv: Tensor, mask: Tensor | None) -> _State:
        """Dense attention of `query` [batch, queries, head_dim] over `kv` [2, batch, keys, head_dim], with an
        additive `mask` that broadcasts to the scores; every query sees a key. [batch, queries, head_dim] and
        [batch, queries]."""
        keys, values = kv
        shape = (*query.shape[:2], keys.shape[1])
        scores = self._scratch.take("scores", shape, torch.float32)
        if query.dtype == torch.float32:
            scores.baddbmm_(query, keys.transpose(1, 2), beta=0, alpha=self._scale)
        else:
            scores.copy_(torch.bmm(query, keys.transpose(1, 2))).mul_(self._scale)
        if mask is not None:
            scores.add_(mask)
        peak = scores.amax(-1)
        weights = torch.softmax(scores, -1, out=self._scratch.take("weights", shape, torch.float32))
        # The largest weight is exp(peak - lse): cheaper than summing the exponentials once more.
        lse = peak.sub_(weights.amax(-1).log_())
        return _State(torch.bmm(weights.to(query.dtype), values).float(), lse)


def _fold(operation: Callable[..., Tensor], total: Tensor, level: Level, items: Tensor) -> None:
    """`operation` (an elementwise function of two tensors) of a level's items into the `total` of their
    rows."""
    part = items[level.first : level.last]
    if level.scattered is None:
        rows = total[level.rows]
        operation(rows, part, out=rows)
    else:
        total[level.scattered] = operation(total[level.scattered], part)


def _merge(state: _State, rows: slice, part: _State) -> None:
    """Fold `part` into `rows` of `state`; a side that has seen nothing has log-sum-exp -inf and weight 0."""
    out, lse = state.out[rows], state.lse[rows]
    merged = torch.logaddexp(lse, part.lse)
    out.mul_((lse - merged).exp_().unsqueeze(-1))
    out.addcmul_(part.out, (part.lse - merged).exp_().unsqueeze(-1))
    lse.copy_(merged)
