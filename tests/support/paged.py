"""Random ragged batches over a paged KV pool, and dense attention in float64 to compare with."""

import math
from dataclasses import dataclass

import torch
from branchwise.kernels.attention import HeadShape, PagedAttention
from branchwise.kernels.fixed_attention import FixedAttention
from branchwise.kernels.interface import Attention
from branchwise.kernels.tables import RowSpan
from hypothesis import strategies as st
from torch import Tensor

BLOCK = 4
CHUNK = 8
LANES = 16
"""Positions of a group in a native pool."""


@dataclass
class Case:
    """`spans` over a pool of `pool_blocks` blocks; block 0 is never in a table."""

    spans: list[RowSpan]
    pool_blocks: int
    block: int = BLOCK


@st.composite
def cases(draw: st.DrawFn, max_rows: int = 9, block: int = BLOCK) -> Case:
    """Spans that share leading blocks as branches of random trees do, in random order."""
    tables: list[tuple[int, ...]] = [()]
    following = 1
    for _ in range(draw(st.integers(1, 6))):
        parent = draw(st.sampled_from(tables))
        length = draw(st.integers(1, 5))
        tables.append((*parent, *range(following, following + length)))
        following += length
    spans: list[RowSpan] = []
    for _ in range(draw(st.integers(1, 8))):
        shared = draw(st.sampled_from(tables))
        rows = draw(st.one_of(st.just(1), st.integers(1, max_rows)))
        # Positions behind the shared blocks are the span's own, as copy-on-write leaves them.
        start = len(shared) * block + draw(st.integers(0, 9))
        own = -(-(start + rows) // block) - len(shared)
        spans.append(RowSpan(start, rows, (*shared, *range(following, following + own))))
        following += own
    return Case(spans, following, block)


def random_kv(case: Case, kv_heads: int, head_dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A layer's pool; block 0 is poisoned with NaN."""
    kv = torch.randn(2, case.pool_blocks, kv_heads, case.block, head_dim, dtype=torch.float32)
    kv[:, 0] = float("nan")
    return kv.to(dtype)


def random_queries(case: Case, heads: int, head_dim: int) -> list[Tensor]:
    """Queries of each span, fp32 [rows, heads, head_dim]."""
    return [torch.randn(span.rows, heads, head_dim) for span in case.spans]


def make_attention(
    case: Case, heads: int, kv: Tensor, *, fixed: bool, window: int | None = None
) -> PagedAttention | FixedAttention:
    """The torch kernels for the case's pool."""
    shape = HeadShape(heads, kv.shape[2], kv.shape[4], BLOCK, case.pool_blocks)
    if fixed:
        return FixedAttention(shape, CHUNK, [window], kv.dtype, torch.device("cpu"))
    return PagedAttention(shape, CHUNK, [window], torch.device("cpu"))


def in_groups(kv: Tensor) -> Tensor:
    """A layer's pool [2, blocks, kv_heads, block_size, head_dim] in the order of kernels/native/groups.h."""
    _, blocks, heads, block, dim = kv.shape
    unit = 4 // kv.dtype.itemsize
    keys = kv[0].view(blocks, heads, block // LANES, LANES, dim // unit, unit).transpose(3, 4)
    values = kv[1].view(blocks, heads, block // LANES, LANES // unit, unit, dim).transpose(4, 5)
    return torch.stack([part.reshape(blocks, heads, block, dim) for part in (keys, values)])


def attend(spans: list[RowSpan], queries: list[Tensor], kv: Tensor, attention: Attention) -> list[Tensor]:
    """A step on packed rows; results per span, [rows, heads * head_dim]. `kv` lies in rows."""
    heads, head_dim = queries[0].shape[1:]
    step = attention.plan(spans)
    ((_, plan),) = step.by_window.items()
    packed = torch.cat([queries[index] for index in step.order]).to(kv.dtype)
    out = torch.full((packed.shape[0] + 3, heads * head_dim), float("nan"), dtype=kv.dtype)
    attention.run(packed, in_groups(kv) if attention.grouped else kv, plan, out)
    parts = out[: packed.shape[0]].split([spans[index].rows for index in step.order])
    results: list[Tensor] = [torch.empty(0)] * len(spans)
    for index, part in zip(step.order, parts, strict=True):
        results[index] = part
    return results


def dense(case: Case, queries: list[Tensor], kv: Tensor, window: int | None = None) -> list[Tensor]:
    """Softmax attention row by row in float64."""
    results = []
    for span, query in zip(case.spans, queries, strict=True):
        keys, values = (
            part[list(span.blocks)].transpose(1, 2).reshape(-1, kv.shape[2], kv.shape[4]).double()
            for part in kv
        )
        group = query.shape[1] // kv.shape[2]
        rows = []
        for row in range(span.rows):
            last = span.start + row + 1
            first = 0 if window is None else max(0, last - window)
            seen = (
                keys[first:last].repeat_interleave(group, 1),
                values[first:last].repeat_interleave(group, 1),
            )
            scores = torch.einsum("hd,khd->hk", query[row].double(), seen[0]) / math.sqrt(query.shape[2])
            rows.append(torch.einsum("hk,khd->hd", scores.softmax(-1), seen[1]).flatten())
        results.append(torch.stack(rows))
    return results
