"""Attention over paged KV in torch: runs an `AttentionPlan` with a few batched products per layer.

KV of a layer is [2, blocks, kv_heads, block_size, head_dim]: a (block, head) pair is one contiguous run, so
gathering the blocks of an item gives operands that need no further copy. Query heads of one KV head are rows
of the same product; KV is never repeated. Softmax is fp32; partial results carry the logarithm of their
weights' sum and are merged by it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .interface import PlannedStep, agreed_order
from .scratch import Scratch
from .slabs import AttentionPlan, Planner, RowSlab, Tile
from .tables import RowSpan

_GATHERED_VALUES = 1 << 23
"""Values of gathered KV that stand at once: bounds work memory at 32 MB of fp32."""


@dataclass(slots=True)
class State:
    """Attention of some rows over the keys seen so far, and the log-sum-exp of their scores; fp32 [rows,
    kv_heads, group, head_dim] and [rows, kv_heads, group] unless stated otherwise."""

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
    mask: Tensor | None


@dataclass(slots=True)
class PreparedPlan:
    """A plan with the gather indices and masks of its items; valid for every layer of one step."""

    rows: int
    slabs: list[_PreparedSlab]
    tiles: list[_PreparedTile]


class HeadShape:
    """How a model's heads lie in a pool of `pool_blocks` blocks, and the scaled dense attention on gathered
    KV."""

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        block_size: int,
        pool_blocks: int,
        *,
        scale: float | None = None,
        softcap: float | None = None,
    ) -> None:
        """Scores are `scale * q.k` (None: `head_dim ** -0.5`); with a `softcap` c then `c * tanh(scores /
        c)`."""
        self.kv_heads = kv_heads
        self.group = heads // kv_heads
        self.head_dim = head_dim
        self.block_size = block_size
        self.pool_blocks = pool_blocks
        self.scale = head_dim**-0.5 if scale is None else scale
        self.softcap = softcap
        self.scratch = Scratch()

    def items_at_once(self, key_chunk: int) -> int:
        """How many items of `key_chunk` keys may have their KV gathered at once."""
        return max(1, _GATHERED_VALUES // (2 * self.kv_heads * key_chunk * self.head_dim))

    def split(self, rows: Tensor) -> Tensor:
        """[rows, heads * head_dim] or [rows, heads, head_dim] as [rows, kv_heads, group, head_dim]."""
        return rows.view(rows.shape[0], self.kv_heads, self.group, self.head_dim)

    def flat_pool(self, kv: Tensor) -> Tensor:
        """A layer's KV as [2 * pool_blocks * kv_heads, block_size * head_dim]."""
        return kv.view(-1, self.block_size * self.head_dim)

    def store(self, rows: Tensor, slots: Tensor, kv: Tensor) -> None:
        """See `Attention.store`; the pool lies in rows."""
        kv.view(-1, self.head_dim).index_copy_(0, slots, rows.reshape(-1, self.head_dim))

    def gather_index(self, blocks: Tensor) -> Tensor:
        """Rows of the flat pool for `blocks` [items, n]: [2 * items * kv_heads * n], the keys of all items,
        then the values."""
        heads = torch.arange(self.kv_heads)
        keys = blocks[:, None, :] * self.kv_heads + heads[:, None]
        return torch.stack((keys, keys + self.pool_blocks * self.kv_heads)).reshape(-1)

    def gather(self, pool: Tensor, index: Tensor, batch: int) -> Tensor:
        """Keys and values of the indexed (block, head) runs: [2, batch, keys, head_dim]."""
        kv = self.scratch.take("kv", (index.numel(), pool.shape[1]), pool.dtype)
        torch.index_select(pool, 0, index, out=kv)
        return kv.view(2, batch, -1, self.head_dim)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Scaled scores fp32 [batch, queries, keys] of `query` [batch, queries, head_dim]; scratch memory."""
        scores = self.scratch.take("scores", (*query.shape[:2], keys.shape[1]), torch.float32)
        if query.dtype == torch.float32:
            scores.baddbmm_(query, keys.transpose(1, 2), beta=0, alpha=self.scale)
        else:
            scores.copy_(torch.bmm(query, keys.transpose(1, 2))).mul_(self.scale)
        return scores if self.softcap is None else scores.div_(self.softcap).tanh_().mul_(self.softcap)

    def softmax(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Weights like `scores`, and the log-sum-exp without the last dimension; every row sees a key."""
        peak = scores.amax(-1)
        out = self.scratch.take("weights", tuple(scores.shape), torch.float32)
        weights = torch.softmax(scores, -1, out=out)
        # The largest weight is exp(peak - lse): cheaper than summing the exponentials once more.
        return weights, peak.sub_(weights.amax(-1).log_())

    def attend(self, query: Tensor, kv: Tensor, mask: Tensor | None) -> State:
        """Dense attention of `query` [batch, queries, head_dim] over `kv` [2, batch, keys, head_dim]; the
        additive `mask` broadcasts to the scores. `out` is [batch, queries, head_dim], `lse` [batch,
        queries]."""
        scores = self.scores(query, kv[0])
        if mask is not None:
            scores.add_(mask)
        weights, lse = self.softmax(scores)
        return State(torch.bmm(weights.to(query.dtype), kv[1]).float(), lse)


class PagedAttention:
    """Implements `Attention`: shared runs of keys are read once, prefill attends in tiles.

    `windows` are the sliding windows of the model's layers, None for full attention.
    """

    masks_loads = False
    grouped = False

    def __init__(
        self, shape: HeadShape, key_chunk: int, windows: Iterable[int | None], device: torch.device
    ) -> None:
        self._shape = shape
        self._device = device
        items = shape.items_at_once(key_chunk)
        self._planners = {
            window: Planner(shape.block_size, key_chunk, window=window, items_per_slab=items)
            for window in windows
        }

    def plan(self, spans: Sequence[RowSpan]) -> PlannedStep:
        """See `Attention.plan`."""
        plans = {window: planner.plan(spans) for window, planner in self._planners.items()}
        order = agreed_order([plan.order for plan in plans.values()])
        return PlannedStep(order, {window: self._prepared(plan) for window, plan in plans.items()})

    def _prepared(self, plan: AttentionPlan) -> PreparedPlan:
        """Index tensors and masks that all layers of the step share."""
        shape, device = self._shape, self._device
        slabs = []
        for slab in plan.slabs:
            layout = slab.layout
            if layout.gather is None:
                layout.gather = shape.gather_index(layout.blocks).to(device)
            mask = slab.mask.repeat_interleave(shape.kv_heads, 0)[:, None]
            slabs.append(_PreparedSlab(slab, layout.gather, mask.to(device)))
        tiles = []
        for tile in plan.tiles:
            mask = None if tile.mask is None else tile.mask.repeat_interleave(shape.group, 0).to(device)
            tiles.append(_PreparedTile(tile, shape.gather_index(tile.blocks[None]).to(device), mask))
        return PreparedPlan(plan.rows, slabs, tiles)

    def run(self, query: Tensor, kv: Tensor, plan: PreparedPlan, out: Tensor) -> None:
        """See `Attention.run`."""
        grouped, target = self._shape.split(query), self._shape.split(out)
        pool = self._shape.flat_pool(kv)
        if not plan.tiles:
            for slab in plan.slabs:
                rows = slab.source.layout.rows
                target[rows] = self._row_items(grouped[rows], pool, slab).out
            return
        state = self._empty_state(plan.rows)
        for slab in plan.slabs:
            rows = slab.source.layout.rows
            part = self._row_items(grouped[rows], pool, slab)
            state.out[rows], state.lse[rows] = part.out, part.lse
        for tile in plan.tiles:
            rows = tile.source.rows
            _merge(state, rows, self._tile(grouped[rows], pool, tile))
        target[: plan.rows] = state.out

    def store(self, rows: Tensor, slots: Tensor, kv: Tensor) -> None:
        """See `Attention.store`."""
        self._shape.store(rows, slots, kv)

    def _empty_state(self, rows: int) -> State:
        shape = (rows, self._shape.kv_heads, self._shape.group)
        take = self._shape.scratch.take
        out = take("out", (*shape, self._shape.head_dim), torch.float32).zero_()
        return State(out, take("lse", shape, torch.float32).fill_(float("-inf")))

    def _row_items(self, query: Tensor, pool: Tensor, slab: _PreparedSlab) -> State:
        """All keys of the slab's rows: every item on its own, then the items of each row added up."""
        shape, layout = self._shape, slab.source.layout
        items = len(layout.item_rows)
        kv = shape.gather(pool, slab.index, items * shape.kv_heads)
        if items > query.shape[0]:
            query = query.index_select(0, layout.item_rows)
        part = shape.attend(query.reshape(-1, shape.group, shape.head_dim), kv, slab.mask)
        out, lse = shape.split(part.out.view(items, -1)), part.lse.view(items, shape.kv_heads, shape.group)
        first, *others = layout.levels
        if not others:
            return State(out, lse)
        state = State(out[: first.last], lse[: first.last])
        for level in others:
            rows = level.rows if level.scattered is None else level.scattered
            _merge(state, rows, State(out[level.first : level.last], lse[level.first : level.last]))
        return state

    def _tile(self, query: Tensor, pool: Tensor, tile: _PreparedTile) -> State:
        """One run of keys for consecutive rows, one product per KV head."""
        shape, rows = self._shape, query.shape[0]
        kv = shape.gather(pool, tile.index, shape.kv_heads)
        packed = query.transpose(0, 1).reshape(shape.kv_heads, rows * shape.group, shape.head_dim)
        part = shape.attend(packed, kv, tile.mask)
        parts = (shape.kv_heads, rows, shape.group)
        out = part.out.view(*parts, shape.head_dim)
        return State(out.transpose(0, 1), part.lse.view(parts).transpose(0, 1))


def _merge(state: State, rows: slice | Tensor, part: State) -> None:
    """Fold `part` into `rows` of `state`; a side that has seen nothing has log-sum-exp -inf and weight 0."""
    out, lse = state.out[rows], state.lse[rows]
    merged = torch.logaddexp(lse, part.lse)
    out.mul_((lse - merged).exp_().unsqueeze(-1))
    out.addcmul_(part.out, (part.lse - merged).exp_().unsqueeze(-1))
    if isinstance(rows, slice):
        lse.copy_(merged)
    else:
        state.out[rows], state.lse[rows] = out, merged
