"""Attention of the deterministic mode in torch: runs a `FixedPlan` in products of two fixed shapes.

A row item multiplies `LONE_ROWS` query rows (one is real, unless a KV head has more query heads) with one
chunk of keys; a tile item `TILE_ROWS` times the group. Each element of a product is one accumulation along
the same features or keys, so both shapes give a row equal bits as long as the library accumulates alike for
both, which `shares` tries on this machine. Where it does not, every row is computed alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention import HeadShape
from .fixed_plan import TILE_ROWS, FixedPlan, FixedPlanner, FixedSlab, RowItems, TileItems
from .interface import PlannedStep, agreed_order
from .tables import RowSpan

LONE_ROWS = 4
"""Fewest rows of a product that libraries compute as they compute many: one or two go to other code."""


@dataclass(slots=True)
class _PreparedSlab:
    source: FixedSlab
    mask: Tensor


@dataclass(slots=True)
class PreparedFixedPlan:
    """A plan with its masks laid out for the heads; valid for every layer of one step."""

    slabs: list[_PreparedSlab]


class FixedAttention:
    """Implements `Attention` with bits that do not depend on what else is in a step; arguments as for
    `PagedAttention`, and the `dtype` of queries and KV."""

    masks_loads = False
    grouped = False

    def __init__(
        self,
        shape: HeadShape,
        key_chunk: int,
        windows: Iterable[int | None],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._shape = shape
        self._device = device
        self._lone_rows = max(shape.group, LONE_ROWS)
        self.shares = _tiles_equal_lone_rows(shape, key_chunk, self._lone_rows, dtype, device)
        if not self.shares:
            self._lone_rows = shape.group
        self._lone = torch.empty(0)
        self._planners = {
            window: FixedPlanner(
                shape.block_size,
                key_chunk,
                share=self.shares,
                window=window,
                items_per_slab=shape.items_at_once(key_chunk),
            )
            for window in windows
        }

    def plan(self, spans: Sequence[RowSpan]) -> PlannedStep:
        """See `Attention.plan`."""
        plans = {window: planner.plan(spans) for window, planner in self._planners.items()}
        order = agreed_order([plan.order for plan in plans.values()])
        return PlannedStep(order, {window: self._prepared(plan) for window, plan in plans.items()})

    def _prepared(self, plan: FixedPlan) -> PreparedFixedPlan:
        """Index tensors and masks that all layers of the step share."""
        slabs = []
        for slab in plan.slabs:
            for items in (slab.own, slab.shared):
                if items is not None and items.gather is None:
                    items.gather = self._shape.gather_index(items.blocks).to(self._device)
            mask = slab.mask.repeat_interleave(self._shape.kv_heads, 0)[:, None]
            slabs.append(_PreparedSlab(slab, mask.to(self._device)))
        return PreparedFixedPlan(slabs)

    def run(self, query: Tensor, kv: Tensor, plan: PreparedFixedPlan, out: Tensor) -> None:
        """See `Attention.run`."""
        grouped, target = self._shape.split(query), self._shape.split(out)
        pool = self._shape.flat_pool(kv)
        for slab in plan.slabs:
            rows = slab.source.rows
            target[rows] = self._slab(grouped[rows], pool, slab)

    def store(self, rows: Tensor, slots: Tensor, kv: Tensor) -> None:
        """See `Attention.store`."""
        self._shape.store(rows, slots, kv)

    def _slab(self, query: Tensor, pool: Tensor, slab: _PreparedSlab) -> Tensor:
        """Results of the slab's rows, fp32 [rows, kv_heads, group, head_dim]."""
        shape, source, rows = self._shape, slab.source, query.shape[0]
        parts = (source.chunks * rows, shape.kv_heads, shape.group)
        out = shape.scratch.take("entries", (*parts, shape.head_dim), torch.float32)
        lse = shape.scratch.take("entry_lse", parts, torch.float32)
        if not source.full:
            out.zero_()
            lse.fill_(float("-inf"))
        self._row_items(query, pool, source.own, slab.mask, out, lse)
        if source.shared is not None:
            self._tile_items(query, pool, source.shared, out, lse)
        if source.chunks == 1:
            return out
        return _summed(
            out.view(source.chunks, rows, *out.shape[1:]), lse.view(source.chunks, rows, *lse.shape[1:])
        )

    def _row_items(
        self, query: Tensor, pool: Tensor, items: RowItems, mask: Tensor, out: Tensor, lse: Tensor
    ) -> None:
        shape, count = self._shape, len(items.rows)
        batch = count * shape.kv_heads
        assert items.gather is not None
        kv = shape.gather(pool, items.gather, batch)
        padded = self._padded(query)
        chosen = padded.index_select(0, items.rows).view(batch, self._lone_rows, shape.head_dim)
        scores = shape.scores(chosen, kv[0])[:, : shape.group] + mask
        weights, item_lse = shape.softmax(scores)
        spread = shape.scratch.take("spread", (batch, self._lone_rows, weights.shape[-1]), query.dtype)
        spread[:, : shape.group] = weights
        values = torch.bmm(spread, kv[1])[:, : shape.group].reshape(count, *out.shape[1:])
        out.index_copy_(0, items.entries, values.float())
        lse.index_copy_(0, items.entries, item_lse.view(count, *lse.shape[1:]))

    def _padded(self, query: Tensor) -> Tensor:
        """Each row's queries followed by zero rows: [rows, kv_heads, lone rows, head_dim]."""
        rows = query.shape[0]
        if self._lone.shape[0] < rows:
            parts = (rows, self._shape.kv_heads, self._lone_rows, self._shape.head_dim)
            self._lone = query.new_zeros(parts)
        padded = self._lone[:rows]
        padded[:, :, : self._shape.group] = query
        return padded

    def _tile_items(self, query: Tensor, pool: Tensor, items: TileItems, out: Tensor, lse: Tensor) -> None:
        shape, count = self._shape, len(items.tile)
        assert items.gather is not None
        kv = shape.gather(pool, items.gather, count * shape.kv_heads)
        tiles = query.index_select(0, items.rows.view(-1)).view(-1, TILE_ROWS, *query.shape[1:])
        tiles = tiles.transpose(1, 2).reshape(-1, shape.kv_heads, TILE_ROWS * shape.group, shape.head_dim)
        chosen = tiles.index_select(0, items.tile).view(-1, TILE_ROWS * shape.group, shape.head_dim)
        part = shape.attend(chosen, kv, None)
        by_head = (count, shape.kv_heads, TILE_ROWS, shape.group)
        values = part.out.view(*by_head, shape.head_dim).transpose(1, 2).reshape(-1, *out.shape[1:])
        values_lse = part.lse.view(by_head).transpose(1, 2).reshape(-1, *lse.shape[1:])
        if len(items.kept) < len(values):
            values, values_lse = values.index_select(0, items.kept), values_lse.index_select(0, items.kept)
        out.index_copy_(0, items.entries, values)
        lse.index_copy_(0, items.entries, values_lse)


def _summed(out: Tensor, lse: Tensor) -> Tensor:
    """Results of all chunks [chunks, rows, ..] added up one after the other in the order of their positions.
    A chunk that a row does not meet has log-sum-exp -inf: it adds an exact zero, so a row's bits do not
    depend on how many chunks its neighbours have."""
    weight = lse.sub_(lse.amax(0)).exp_()
    out.mul_(weight.unsqueeze(-1))
    (total, *weights), (summed, *parts) = weight.unbind(), out.unbind()
    for addend, part in zip(weights, parts, strict=True):
        total.add_(addend)
        summed.add_(part)
    return summed.div_(total.unsqueeze(-1))


def _tiles_equal_lone_rows(
    shape: HeadShape, keys: int, lone_rows: int, dtype: torch.dtype, device: torch.device
) -> bool:
    """Whether a row's scores and values have the same bits in a tile's product and in a lone row's."""
    generator = torch.Generator().manual_seed(0)

    def random(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(device, dtype)

    tile_rows = TILE_ROWS * shape.group
    query, kv = random(4, tile_rows, shape.head_dim), random(2, 4, keys, shape.head_dim)
    scores = shape.scores(query, kv[0]).clone()
    weights = scores.softmax(-1).to(dtype)
    values = torch.bmm(weights, kv[1])
    for first in range(tile_rows - lone_rows + 1):
        rows = slice(first, first + lone_rows)
        if not torch.equal(shape.scores(query[:, rows].contiguous(), kv[0]), scores[:, rows]):
            return False
        if not torch.equal(torch.bmm(weights[:, rows].contiguous(), kv[1]), values[:, rows]):
            return False
    return True
