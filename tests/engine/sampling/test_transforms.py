"""Filters against a plain statement of each, in float64."""

import math

import pytest
import torch
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.transforms import filtered, tempered
from hypothesis import example, given
from hypothesis import strategies as st

PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 2, 5, 30, 10_000]),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)


def _kept(logits: list[float], params: SamplingParams) -> set[int]:
    """Token ids that stay, from the definitions."""
    scores = [logit / params.temperature for logit in logits]
    order = sorted(range(len(scores)), key=lambda token: -scores[token])
    if params.top_k:
        order = order[: params.top_k]
    weights = [math.exp(scores[token] - scores[order[0]]) for token in order]
    kept, mass = [], 0.0
    for token, weight in zip(order, weights, strict=True):
        if kept and params.top_p < 1.0 and mass >= params.top_p * sum(weights):
            break
        kept.append(token)
        mass += weight
    return {token for token in kept if scores[token] - scores[order[0]] >= math.log(params.min_p or 1e-300)}


def _found(logits: torch.Tensor, params: list[SamplingParams]) -> list[set[int]]:
    ids, scores = filtered(tempered(logits, params), params)
    return [set(row[score.isfinite()].tolist()) for row, score in zip(ids, scores, strict=True)]


@given(
    seed=st.integers(0, 10_000),
    params=st.lists(PARAMS, min_size=1, max_size=5),
    vocab=st.sampled_from([7, 60, 900]),
)
def test_filters_keep_what_their_definition_keeps(
    seed: int, params: list[SamplingParams], vocab: int
) -> None:
    logits = torch.randn(len(params), vocab, generator=torch.Generator().manual_seed(seed)) * 3
    expected = [_kept(row.tolist(), one) for row, one in zip(logits.double(), params, strict=True)]
    for found, right in zip(_found(logits, params), expected, strict=True):
        # fp32 sums may decide a token on the very edge of the nucleus differently.
        assert len(found ^ right) <= 1


@given(seed=st.integers(0, 10_000), params=st.lists(PARAMS, min_size=2, max_size=5))
@example(seed=130, params=[SamplingParams(temperature=0.3, top_p=0.999)] * 2)
def test_a_row_is_filtered_alike_alone_and_beside_others(seed: int, params: list[SamplingParams]) -> None:
    logits = torch.randn(len(params), 700, generator=torch.Generator().manual_seed(seed))
    together = _found(logits, params)
    for index, one in enumerate(params):
        assert _found(logits[index : index + 1], [one]) == [together[index]]


def test_a_flat_distribution_looks_past_the_first_candidates() -> None:
    params = [SamplingParams(top_p=0.9)]
    (found,) = _found(torch.zeros(1, 5000), params)
    assert len(found) == pytest.approx(4500, abs=2)


@pytest.mark.pins("vllm#3063", "vllm#1623", "vllm#2937")
@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 100.0])
def test_scores_are_finite_or_impossible(temperature: float) -> None:
    logits = torch.tensor([[1e4, 9.9e3, -1e4, 0.0]])
    scores = tempered(logits, [SamplingParams(temperature=temperature)])
    assert not bool(scores.isnan().any())
    assert scores.max().item() == 0.0
