"""The torch oracle of the speculation kernels: chains keep the target's law and accept as much as can be, and
trees change nothing of what the target draws."""

import pytest
import torch
from branchwise.kernels.plain.speculation import chain_verify, tree_walk
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.chains import Chains, chains, left
from support.draft_trees import DraftTree, arguments, draft_trees, ways

VOCAB = 12


@given(trees=draft_trees(), depth=st.integers(1, 8))
def test_a_walk_equals_one_node_by_node(trees: list[DraftTree], depth: int) -> None:
    assert ways(tree_walk(*arguments(trees), depth)) == [tree.way(depth) for tree in trees]


@given(some=chains(most=8))
def test_a_chain_leaves_what_the_ratio_test_leaves(some: Chains) -> None:
    assert left(chain_verify(*some.arguments)) == some.expected()


@pytest.mark.parametrize("sure", [False, True])
def test_the_first_two_tokens_of_chains_follow_the_target(sure: bool) -> None:
    count = 20_000
    generator = torch.Generator().manual_seed(5)
    target = (torch.randn(3, VOCAB, generator=generator) * 1.5).softmax(-1)
    drafted = (torch.randn(2, VOCAB, generator=generator) * 1.5).softmax(-1)
    if sure:
        drafts = torch.tensor([[2, 7]]).expand(count, 2)
    else:
        drafts = torch.multinomial(drafted, count, replacement=True, generator=generator).T
    some = Chains(
        target.expand(count, 3, VOCAB),
        None if sure else drafted.expand(count, 2, VOCAB),
        drafts.to(torch.int32),
        [2] * count,
        list(range(count)),
        [3] * count,
    )
    found = chain_verify(*some.arguments)
    for place in range(2):
        tokens = found.tokens[found.lengths > place, place]
        expected = target[place].double() / target[place].double().sum() * len(tokens)
        counts = torch.bincount(tokens, minlength=VOCAB)
        assert stats.chisquare(counts.numpy(), expected.numpy()).pvalue > 1e-3
    rate = float((found.lengths > 1).double().mean())
    law = float(target[0, 2]) if sure else float(torch.minimum(target[0], drafted[0]).sum())
    assert abs(rate - law) < 4 * (law * (1 - law) / count) ** 0.5
