"""Attention over paged KV in torch: runs an `AttentionPlan` with a few batched products per layer.

KV of a layer is [2, blocks, kv_heads, block_size, head_dim]: a (block, head) pair is one contiguous run, so
gathering the blocks of an item gives operands that need no further copy. Query heads of one KV head are rows
of the same product; KV is never repeated. Partial results carry a running maximum and sum (log-sum-exp
merge), both fp32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .plan import AttentionPlan, RowSlab, Tile
from .scratch import Scratch


@dataclass(slots=True)
class _State:
    """What the rows `0 <= r < rows` have seen so far: `out` is the weighted sum of values at weight
    `exp(score - peak)`, `total` the sum of weights. fp32; [rows, kv_heads, group(, head_dim)]."""

    out: Tensor
    peak: Tensor
    total: Tensor


class PagedAttention:
    """The attention of one model, for one step at a time: `prepare` a plan, then `run` it for each layer."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int, block_size: int, scale: float) -> None:
        self._heads = heads
        self._kv_heads = kv_heads
        self._group = heads // kv_heads
        self._head_dim = head_dim
        self._block_size = block_size
        self._scale = scale
        self._scratch = Scratch()

    def gather_index(self, blocks: Tensor, pool_blocks: int) -> Tensor:
        """Rows of the flattened pool [2 * blocks * kv_heads, ...] for `blocks` [items, n]: [2 * items *
        kv_heads * n]."""
        heads = torch.arange(self._kv_heads, device=blocks.device)
        keys = blocks[:, None, :] * self._kv_heads + heads[:, None]
        return torch.stack((keys, keys + pool_blocks * self._kv_heads)).reshape(-1)

    def prepare(self, plan: AttentionPlan, pool_blocks: int) -> "PreparedPlan":
        """Index tensors that all layers of the step share."""
        slabs = [_PreparedSlab(slab, self.gather_index(slab.blocks, pool_blocks)) for slab in plan.slabs]
        tiles = [
            _PreparedTile(tile, self.gather_index(tile.blocks[None], pool_blocks)) for tile in plan.tiles
        ]
        return PreparedPlan(plan.rows, slabs, tiles)

    def run(self, query: Tensor, kv: Tensor, plan: "PreparedPlan", out: Tensor) -> None:
        """Attend with `query` [rows, heads, head_dim] over the layer's `kv`; write `out` [rows, heads *
        head_dim].

        `query` and `kv` have one dtype; scores are scaled by the model's scale, softmax is fp32.
        """
        grouped = query.view(query.shape[0], self._kv_heads, self._group, self._head_dim)
        pool = kv.view(-1, self._block_size * self._head_dim)
        target = out.view(out.shape[0], self._kv_heads, self._group, self._head_dim)
        if not plan.tiles:
            for slab in plan.slabs:
                rows = slab.source.rows
                state = self._row_items(grouped[rows], pool, slab)
                torch.div(state.out, state.total.unsqueeze(-1), out=state.out)
                target[rows].copy_(state.out)
            return
        state = self._empty_state(plan.rows)
        for slab in plan.slabs:
            rows = slab.source.rows
            part = self._row_items(grouped[rows], pool, slab)
            state.out[rows], state.peak[rows], state.total[rows] = part.out, part.peak, part.total
        for tile in plan.tiles:
            rows = tile.source.rows
            _merge(state, rows, self._tile(grouped[rows], pool, tile))
        torch.div(state.out, state.total.unsqueeze(-1), out=state.out)
        target[: plan.rows].copy_(state.out)

    def _empty_state(self, rows: int) -> _State:
        shape = (rows, self._kv_heads, self._group)
        out = self._scratch.take("out", (*shape, self._head_dim), torch.float32).zero_()
        peak = self._scratch.take("peak", shape, torch.float32).fill_(float("-inf"))
        return _State(out, peak, self._scratch.take("total", shape, torch.float32).zero_())

    def _row_items(self, query: Tensor, pool: Tensor, slab: "_PreparedSlab") -> _State:
        """All keys of the slab's rows. The maximum is taken over a row's items before any exponential, so
        items add up without rescaling, level by level in the order of their keys."""
        source = slab.source
        items, keys = source.mask.shape
        shape = (items * self._kv_heads, self._group, keys)
        kv = self._gather(pool, slab.index, items * self._kv_heads, keys)
        if items > query.shape[0]:
            query = query.index_select(0, source.item_rows)
        scores = self._scores(query.reshape(shape[0], self._group, self._head_dim), kv[0])
        grouped = scores.view(items, self._kv_heads, self._group, keys).add_(source.mask[:, None, None, :])
        peaks = grouped.amax(-1)
        first, *others = source.levels
        peak = peaks[: first.last]
        for level in others:
            part = peaks[level.first : level.last]
            if level.scattered is None:
                torch.maximum(peak[level.rows], part, out=peak[level.rows])
            else:
                peak[level.scattered] = torch.maximum(peak[level.scattered], part)
        weights = grouped.sub_(
            (peak if not others else peak.index_select(0, source.item_rows)).unsqueeze(-1)
        ).exp_()
        totals = weights.sum(-1)
        values = torch.bmm(weights.view(shape).to(pool.dtype), kv[1]).float()
        values = values.view(items, self._kv_heads, self._group, self._head_dim)
        total, out = totals[: first.last], values[: first.last]
        for level in others:
            span = slice(level.first, level.last)
            if level.scattered is None:
                total[level.rows].add_(totals[span])
                out[level.rows].add_(values[span])
            else:
                total.index_add_(0, level.scattered, totals[span])
                out.index_add_(0, level.scattered, values[span])
        return _State(out, peak, total)

    def _tile(self, query: Tensor, pool: Tensor, tile: "_PreparedTile") -> _State:
        """One run of keys for consecutive rows, one product per KV head."""
        rows, keys = query.shape[0], tile.source.blocks.numel() * self._block_size
        kv = self._gather(pool, tile.index, self._kv_heads, keys)
        packed = query.transpose(0, 1).reshape(self._kv_heads, rows * self._group, self._head_dim)
        scores = self._scores(packed, kv[0])
        if tile.source.mask is not None:
            scores.view(self._kv_heads, rows, self._group, keys).add_(tile.source.mask[:, None, :])
        peak = scores.amax(-1, keepdim=True)
        # A row that sees none of these keys has peak -inf; 0 keeps its weights exp(-inf) = 0 instead of NaN.
        weights = scores.sub_(torch.where(peak == float("-inf"), 0.0, peak)).exp_()
        shape = (self._kv_heads, rows, self._group)
        out = torch.bmm(weights.to(pool.dtype), kv[1]).float().view(*shape, self._head_dim).transpose(0, 1)
        return _State(out, peak.view(shape).transpose(0, 1), weights.sum(-1).view(shape).transpose(0, 1))

    def _gather(self, pool: Tensor, index: Tensor, batch: int, keys: int) -> Tensor:
        """Keys and values of the indexed (block, head) runs: [2, batch, keys, head_dim]."""
        kv = self._scratch.take("kv", (index.numel(), pool.shape[1]), pool.dtype)
        torch.index_select(pool, 0, index, out=kv)
        return kv.view(2, batch, keys, self._head_dim)

    def _scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scaled scores fp32 [batch, queries, keys]."""
        if query.dtype == torch.float32:
            scores = self._scratch.take("scores", (*query.shape[:2], keys.shape[1]), torch.float32)
            return scores.baddbmm_(query, keys.transpose(1, 2), beta=0, alpha=self._scale)
        return torch.bmm(query, keys.transpose(1, 2)).float().mul_(self._scale)


@dataclass(slots=True)
class _PreparedSlab:
    source: RowSlab
    index: Tensor


@dataclass(slots=True)
class _PreparedTile:
    source: Tile
    index: Tensor


@dataclass(slots=True)
class PreparedPlan:
    """A plan with the gather indices of its items; valid for every layer of one step."""

    rows: int
    slabs: list[_PreparedSlab]
    tiles: list[_PreparedTile]


def _merge(state: _State, rows: slice, part: _State) -> None:
    """Fold `part` into `rows` of `state`: both sides move to the common maximum, then add."""
    out, peak, total = state.out[rows], state.peak[rows], state.total[rows]
    common = torch.maximum(peak, part.peak)
    anchor = torch.where(common == float("-inf"), 0.0, common)
    old, new = torch.exp(peak - anchor), torch.exp(part.peak - anchor)
    out.mul_(old.unsqueeze(-1)).addcmul_(part.out, new.unsqueeze(-1))
    total.mul_(old).addcmul_(part.total, new)
    peak.copy_(common)
