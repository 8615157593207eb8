"""Verification of draft trees against the tokens that the target drew at their nodes: an integer walk.

The target draws one token at every node with the noise of the node's position. The walk goes to the child
that holds the drawn token, as long as there is one, so what it passes is what the target alone would have
drawn, whatever the tree is.
"""

import triton
import triton.language as tl
from torch import Tensor

from ..speculated import Walked
from ..work import power_of_two
from .build import Build, Ceiling
from .launch import on_grid


@triton.jit(do_not_specialize=["stride"])
def walk_trees(
    parents,
    tokens,
    drawn,
    sizes,
    nodes,
    passed,
    lengths,
    stride,
    depth: tl.constexpr,
    block: tl.constexpr,
    steps: tl.constexpr,
):
    """Walk one tree per program."""
    tree = tl.program_id(0).to(tl.int64)
    node = tl.arange(0, block)
    inside = node < tl.load(sizes + tree)
    parent = tl.load(parents + tree * stride + node, mask=inside, other=-1)
    token = tl.load(tokens + tree * stride + node, mask=inside, other=-1)
    step = tl.arange(0, steps)
    way = tl.full([steps], -1, tl.int32)
    found = tl.full([steps], -1, tl.int32)
    at = 0
    length = 0
    for now in range(depth):
        if at < block:
            target = tl.load(drawn + tree * stride + at)
            way = tl.where(step == now, at, way)
            found = tl.where(step == now, target, found)
            length += 1
            at = tl.min(tl.where((node > at) & (parent == at) & (token == target), node, block), 0)
    tl.store(nodes + tree * depth + step, way, mask=step < depth)
    tl.store(passed + tree * depth + step, found, mask=step < depth)
    tl.store(lengths + tree, length)


def tree_walk(
    parents: Tensor, tokens: Tensor, drawn: Tensor, sizes: Tensor, depth: int, *, out: Walked | None = None
) -> Walked:
    """The way from the root of each tree along the drawn tokens, of `depth` nodes at most.

    Int32 `parents`, `tokens` and `drawn` [batch, nodes], contiguous, of which tree i has the first
    `sizes[i]`, int32 [batch], at least 1. Node 0 is the root, the last committed token; a parent stands
    before its children. `tokens` are the drafts and `drawn` what the target drew at each node, so that the
    last node of a way gives a token that no draft foresaw. Of children with equal tokens the first counts.
    `out` is made where it is not given. Nothing waits for the device.
    """
    batch, width = tokens.shape
    assert all(one.is_contiguous() for one in (parents, tokens, drawn))
    assert parents.shape == tokens.shape == drawn.shape
    out = Walked.empty(batch, depth, tokens.device) if out is None else out
    if batch:
        on_grid(walk_trees, batch)(
            parents,
            tokens,
            drawn,
            sizes,
            out.nodes,
            out.tokens,
            out.lengths,
            width,
            depth=depth,
            block=power_of_two(width),
            steps=power_of_two(depth),
            num_warps=1,
        )
    return out


def builds() -> list[Build]:
    """Trees of 64 nodes and ways of 16."""
    return [
        Build(
            name="walk_trees",
            kernel=walk_trees,
            signature={
                **dict.fromkeys(
                    ("parents", "tokens", "drawn", "sizes", "nodes", "passed", "lengths"), "*i32"
                ),
                "stride": "i32",
            },
            constants={"depth": 16, "block": 64, "steps": 16},
            ceilings=dict.fromkeys((80, 90), Ceiling(registers=32, shared_bytes=64)),
            warps=1,
        )
    ]
