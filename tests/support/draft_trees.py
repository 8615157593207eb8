"""Draft trees with what a target drew at their nodes, and the way through them, node by node."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from branchwise.kernels.speculated import Walked
from hypothesis import strategies as st
from torch import Tensor


@dataclass(frozen=True)
class DraftTree:
    """Parents before children; node 0 is the root."""

    parents: list[int]
    tokens: list[int]
    drawn: list[int]

    def way(self, depth: int) -> list[tuple[int, int]]:
        """(node, token drawn at it) from the root on, `depth` at most."""
        found = [(0, self.drawn[0])]
        for node in range(1, len(self.parents)):
            last, token = found[-1]
            if len(found) < depth and self.parents[node] == last and self.tokens[node] == token:
                found.append((node, self.drawn[node]))
        return found


@st.composite
def draft_trees(draw: st.DrawFn) -> list[DraftTree]:
    """Of a few tokens, so that ways are long and siblings can be equal."""
    trees = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 14))
        parents = [-1] + [draw(st.integers(max(0, node - 4), node - 1)) for node in range(1, size)]
        token = st.lists(st.integers(0, 1), min_size=size, max_size=size)
        trees.append(DraftTree(parents, draw(token), draw(token)))
    return trees


def arguments(trees: list[DraftTree]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Those of `tree_walk`. What pads a tree would lead astray if it were read."""
    width = max(len(tree.parents) for tree in trees)

    def padded(rows: list[list[int]]) -> Tensor:
        return torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=torch.int32)

    sizes = torch.tensor([len(tree.parents) for tree in trees], dtype=torch.int32)
    return (
        padded([tree.parents for tree in trees]),
        padded([tree.tokens for tree in trees]),
        padded([tree.drawn for tree in trees]),
        sizes,
    )


def ways(found: Walked) -> list[list[tuple[int, int]]]:
    """As `DraftTree.way`; what lies behind them is checked to be -1."""
    rows = []
    for nodes, tokens, length in zip(
        found.nodes.tolist(), found.tokens.tolist(), found.lengths.tolist(), strict=True
    ):
        assert set(nodes[length:] + tokens[length:]) <= {-1}
        rows.append(list(zip(nodes[:length], tokens[:length], strict=True)))
    return rows
