"""Walks through draft trees and ratio tests of chains in the interpreter equal those of the CPU path."""

import pytest
import torch
from branchwise.kernels.gpu.chain_verify import chain_verify
from branchwise.kernels.gpu.tree_walk import tree_walk
from branchwise.kernels.speculated import Accepted, Walked
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chains import Chains, chains, left
from support.draft_trees import DraftTree, arguments, draft_trees, ways

CPU = torch.device("cpu")
COLUMNS = 16


@settings(max_examples=40)
@given(trees=draft_trees(), depth=st.integers(1, 8))
def test_a_walk_equals_one_node_by_node(trees: list[DraftTree], depth: int) -> None:
    found = tree_walk(*arguments(trees), depth)
    assert ways(found) == [tree.way(depth) for tree in trees]


def test_a_walk_fills_the_outputs_that_are_given() -> None:
    out = Walked.empty(1, 3, CPU)
    tree = DraftTree([-1, 0, 1], [9, 4, 5], [4, 5, 6])
    assert tree_walk(*arguments([tree]), 3, out=out) is out
    assert ways(out) == [[(0, 4), (1, 5), (2, 6)]]


@settings(max_examples=30)
@given(some=chains(most=5))
def test_a_chain_leaves_what_the_ratio_test_leaves(some: Chains) -> None:
    assert left(chain_verify(*some.arguments, columns=COLUMNS)) == some.expected()


@pytest.mark.slow
@settings(max_examples=150)
@given(some=chains(most=6))
def test_a_chain_leaves_what_the_ratio_test_leaves_at_length(some: Chains) -> None:
    assert left(chain_verify(*some.arguments, columns=COLUMNS)) == some.expected()


def test_drafts_of_the_targets_own_law_are_accepted() -> None:
    target = torch.randn(3, 4, 40, generator=torch.Generator().manual_seed(2)).softmax(-1)
    drafts = target[:, :-1].argmax(-1).to(torch.int32)
    some = Chains(target, target[:, :-1].contiguous(), drafts, [3, 2, 0], [1, 2, 3], [0, 5, 9])
    found = chain_verify(*some.arguments, columns=COLUMNS)
    assert found.lengths.tolist() == [4, 3, 1]
    assert left(found) == some.expected()


def test_an_empty_residual_gives_a_draw_from_the_target() -> None:
    """A draft that its own distribution gives a weight above the target's only by rounding."""
    target = torch.zeros(1, 2, 20)
    target[:, :, 3] = 1.0
    some = Chains(target, target[:, :1] * 2, torch.tensor([[5]], dtype=torch.int32), [1], [4], [2])
    found = chain_verify(*some.arguments, columns=COLUMNS, out=Accepted.empty(1, 1, CPU))
    assert left(found) == some.expected() == [[3]]
