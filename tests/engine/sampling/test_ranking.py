"""The order of candidates is the row's own, however many of them are equal."""

import pytest
import torch
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.ranking import ranked
from branchwise.engine.sampling.transforms import filtered, tempered
from hypothesis import given
from hypothesis import strategies as st


@given(
    seed=st.integers(0, 10_000),
    vocab=st.sampled_from([3, 40, 700]),
    levels=st.sampled_from([1, 2, 9, 10_000]),
    width=st.integers(1, 60),
)
def test_equal_scores_rank_by_id(seed: int, vocab: int, levels: int, width: int) -> None:
    scores = torch.randint(levels, (3, vocab), generator=torch.Generator().manual_seed(seed)).float()
    scores[1, vocab // 2 :] = float("-inf")
    width = min(width, vocab)
    found = ranked(scores, width)
    right, ids = scores.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(found.scores, right[:, :width])
    possible = right[:, :width] > float("-inf")
    assert torch.equal(found.ids[possible], ids[:, :width][possible])


@pytest.mark.parametrize(
    "one", [SamplingParams(top_k=7), SamplingParams(top_p=0.3), SamplingParams(min_p=0.5)]
)
def test_a_neighbour_that_looks_further_changes_no_tie(one: SamplingParams) -> None:
    """Logits as a bf16 model gives them: many are equal."""
    logits = torch.randn(2, 3000, generator=torch.Generator().manual_seed(1)).mul(4).round().div(4)
    wide = SamplingParams(top_k=600)
    ids, scores = filtered(tempered(logits, [one, wide]), [one, wide])
    alone, alone_scores = filtered(tempered(logits[:1], [one]), [one])
    assert set(ids[0][scores[0].isfinite()].tolist()) == set(alone[0][alone_scores[0].isfinite()].tolist())


def test_of_equal_logits_top_k_keeps_the_lowest_ids() -> None:
    params = [SamplingParams(top_k=3)]
    ids, scores = filtered(tempered(torch.zeros(1, 500), params), params)
    assert sorted(ids[0][scores[0].isfinite()].tolist()) == [0, 1, 2]
