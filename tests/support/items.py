"""Steps for attention by work items, and their results in float64."""

import math
from dataclasses import dataclass

import torch
from branchwise.kernels.attention import HeadShape
from branchwise.kernels.interface import PlannedStep
from branchwise.kernels.item_attention import ItemAttention
from branchwise.kernels.plan import capacity_for
from branchwise.kernels.tables import RowSpan, TreeSpan
from torch import Tensor


@dataclass
class Step:
    """`spans` with their queries fp32 [rows, heads, head_dim], and a layer's pool [2, blocks, kv_heads,
    block_size, head_dim], whose trash block is poisoned."""

    spans: list[RowSpan]
    queries: list[Tensor]
    kv: Tensor


def seen_positions(span: RowSpan, row: int, window: int | None = None) -> list[int]:
    """Positions in the table of `span` that its `row` looks at: the last `window` of its path."""
    positions = list(range(span.start + row + 1))
    if isinstance(span, TreeSpan):
        path = [node for node in range(span.rows) if span.ancestors[row] >> node & 1]
        positions = [*range(span.start), *(span.start + node for node in path)]
    return positions if window is None else positions[-window:]


def make_step(
    spans: list[RowSpan],
    heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
) -> Step:
    """Random queries and KV, with the blocks of the tables put in random places of the pool."""
    generator = torch.Generator().manual_seed(seed)
    blocks = 1 + max(max(span.blocks) for span in spans)
    place = [0, *(1 + torch.randperm(blocks - 1, generator=generator)).tolist()]
    moved = [_moved(span, place) for span in spans]
    shape = (2, blocks, kv_heads, block_size, head_dim)
    kv = torch.randn(shape, generator=generator).to(dtype)
    kv[:, 0] = float("nan")
    queries = [torch.randn(span.rows, heads, head_dim, generator=generator).to(dtype) for span in spans]
    return Step(moved, queries, kv)


def _moved(span: RowSpan, place: list[int]) -> RowSpan:
    table = tuple(place[block] for block in span.blocks)
    if isinstance(span, TreeSpan):
        return TreeSpan(span.start, span.rows, table, span.ancestors)
    return RowSpan(span.start, span.rows, table)


def exact(step: Step, window: int | None = None, softcap: float | None = None) -> list[Tensor]:
    """Results per span, float64 [rows, heads * head_dim]."""
    heads, dim = step.queries[0].shape[1:]
    group = heads // step.kv.shape[2]
    results: list[Tensor] = []
    for span, query in zip(step.spans, step.queries, strict=True):
        keys, values = (
            part[list(span.blocks)].transpose(1, 2).reshape(-1, step.kv.shape[2], dim).double()
            for part in step.kv
        )
        rows: list[Tensor] = []
        for row in range(span.rows):
            positions = seen_positions(span, row, window)
            key, value = (part[positions].repeat_interleave(group, 1) for part in (keys, values))
            scores = torch.einsum("hd,khd->hk", query[row].double(), key) / math.sqrt(dim)
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            rows.append(torch.einsum("hk,khd->hd", scores.softmax(-1), value).flatten())
        results.append(torch.stack(rows))
    return results


def item_attention(
    step: Step,
    *,
    triton: bool,
    windows: tuple[int | None, ...] = (None,),
    programs: int = 1,
    chunk: int | None = None,
    softcap: float | None = None,
    tma: bool = False,
) -> ItemAttention:
    """Attention with the capacity that `step` needs."""
    heads, dim = step.queries[0].shape[1:]
    _, blocks, kv_heads, block_size, _ = step.kv.shape
    shape = HeadShape(heads, kv_heads, dim, block_size, blocks, softcap=softcap)
    rows = sum(span.rows for span in step.spans) + 4
    tables = max(len(span.blocks) for span in step.spans)
    capacity = capacity_for(rows, len(step.spans) + 4, tables + 4, block_size, chunk=chunk)
    return ItemAttention(
        shape,
        windows,
        torch.device("cpu"),
        capacity,
        programs=programs,
        chunk=chunk,
        triton=triton,
        tma=tma,
    )


def run_step(
    step: Step, attention: ItemAttention, window: int | None = None, *, padding: int = 2
) -> list[Tensor]:
    """Results per span; queries are a slice of wider rows, with `padding` rows behind them, whose results
    must be 0."""
    return run_planned(step, attention, attention.plan(step.spans), window, padding=padding)


def run_planned(
    step: Step, attention: ItemAttention, planned: PlannedStep, window: int | None = None, *, padding: int = 2
) -> list[Tensor]:
    """`run_step` with a plan of its spans that was made before."""
    packed = torch.cat([step.queries[index] for index in planned.order])
    rows, heads, dim = packed.shape
    qkv = torch.zeros(rows + padding, heads + 2 * step.kv.shape[2], dim, dtype=packed.dtype)
    qkv[:rows, :heads] = packed
    out = torch.full((rows + padding, heads * dim), float("nan"), dtype=packed.dtype)
    attention.run(qkv[:, :heads], step.kv, planned.by_window[window], out)
    assert bool((out[rows:] == 0).all())
    parts = out[:rows].split([step.spans[index].rows for index in planned.order])
    results: list[Tensor] = [torch.empty(0)] * len(parts)
    for index, part in zip(planned.order, parts, strict=True):
        results[index] = part
    return results


def relative_error(found: list[Tensor], expected: list[Tensor]) -> float:
    """The norm of the difference over that of `expected`, of all rows together."""
    difference = torch.cat(found).double() - torch.cat(expected)
    return (difference.norm() / torch.cat(expected).norm()).item()


def branches(
    counts: list[int], blocks: list[int], last: int, block_size: int, *, roots: int = 1
) -> list[RowSpan]:
    """Decoding rows at the leaves of `roots` trees: a node of level i has `blocks[i]` blocks and at level
    i + 1 `counts[i]` children. A leaf's last block holds `last` positions, its row's included, and one
    more for each leaf before it."""
    tables: list[tuple[int, ...]] = [()] * roots
    following = 1
    for level, length in enumerate(blocks):
        children = 1 if level == 0 else counts[level - 1]
        grown: list[tuple[int, ...]] = []
        for table in tables:
            for _ in range(children):
                grown.append((*table, *range(following, following + length)))
                following += length
        tables = grown
    full = (len(tables[0]) - 1) * block_size
    return [RowSpan(full + (last - 1 + index) % block_size, 1, table) for index, table in enumerate(tables)]
