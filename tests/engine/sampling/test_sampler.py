"""Drawing tokens: the right law, the same token in any batch, and greedy where only one token can win."""

import math
from collections.abc import Sequence

import pytest
import torch
from branchwise.engine.sampling.params import GREEDY, SamplingParams
from branchwise.engine.sampling.sampler import NoToken, Sampler, Token
from branchwise.engine.sampling.target import Draw
from branchwise.kernels.noise import Purpose, gumbel, row_keys
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import stats

CPU = torch.device("cpu")
PLAIN = SamplingParams()
KINDS = [
    PLAIN,
    GREEDY,
    SamplingParams(temperature=0.7),
    SamplingParams(top_k=9),
    SamplingParams(top_p=0.8, min_p=0.01),
]


def _draw(logits: torch.Tensor, draws: Sequence[Draw]) -> list[tuple[int, float]]:
    """(id, raw log-probability) of each draw, none of which fails."""
    found = Sampler(logits.shape[1], CPU).draw(logits, draws)
    assert not any(isinstance(one, NoToken) for one in found)
    return [(one.id, one.logprob) for one in found if isinstance(one, Token)]


def _logits(rows: int, vocab: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (PLAIN, 8),
        (SamplingParams(temperature=0.5), 8),
        (SamplingParams(top_k=3), 3),
        (SamplingParams(min_p=0.3), 3),
    ],
)
def test_tokens_follow_the_filtered_distribution(params: SamplingParams, kept: int) -> None:
    probabilities = torch.tensor([0.3, 0.25, 0.2, 0.08, 0.07, 0.05, 0.03, 0.02], dtype=torch.float64)
    logits = probabilities.log().float()[None]
    drawn = _draw(logits, [Draw(0, seed, 11, params) for seed in range(6000)])
    counts = torch.bincount(torch.tensor([token for token, _ in drawn]), minlength=8)
    assert int((counts > 0).sum()) == kept
    weights = probabilities[:kept] ** (1 / params.temperature)
    expected = weights / weights.sum() * 6000
    assert stats.chisquare(counts[:kept].numpy(), expected.numpy()).pvalue > 1e-3


@pytest.mark.pins("vllm#17524", "vllm#51226", "sglang#28805")
@given(data=st.data())
def test_a_token_depends_on_its_own_row_alone(data: st.DataObject) -> None:
    vocab = data.draw(st.sampled_from([50, 5000]))
    logits = _logits(4, vocab)
    picks = st.tuples(
        st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(0, 999), st.sampled_from(KINDS)
    )
    draws = [Draw(*pick) for pick in data.draw(st.lists(picks, min_size=1, max_size=6))]
    together = _draw(logits, draws)
    for draw, found in zip(draws, together, strict=True):
        assert _draw(logits[draw.row : draw.row + 1], [replace(draw, row=0)]) == [found]


@pytest.mark.pins("vllm#3063", "vllm#1623", "vllm#2937", "exllamav2#50")
@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(temperature=1e-6),
        SamplingParams(temperature=5.0, top_k=1),
        SamplingParams(temperature=5.0, top_p=0.0),
        SamplingParams(temperature=5.0, top_p=1e-9),
        SamplingParams(temperature=5.0, min_p=1.0),
    ],
)
@pytest.mark.parametrize("vocab", [60, 6000])
def test_one_candidate_equals_greedy_for_any_seed(params: SamplingParams, vocab: int) -> None:
    logits = _logits(5, vocab)
    draws = [Draw(row, 31 * row + shift, 4, params) for row in range(5) for shift in range(3)]
    found = _draw(logits, draws)
    best = logits.argmax(-1).tolist()
    assert [token for token, _ in found] == [best[draw.row] for draw in draws]
    assert all(math.isfinite(logprob) for _, logprob in found)


def test_ties_go_to_the_first_token_when_greedy() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0]])
    for params in (GREEDY, SamplingParams(top_k=1), SamplingParams(temperature=1e-6)):
        assert _draw(logits, [Draw(0, 9, 0, params)])[0][0] == 1


def test_logprobs_are_those_of_the_raw_row() -> None:
    logits = _logits(3, 40)
    raw = logits.double().log_softmax(-1)
    for params in KINDS:
        for row, (token, logprob) in enumerate(
            _draw(logits, [Draw(row, row, 0, params) for row in range(3)])
        ):
            assert logprob == pytest.approx(raw[row, token].item(), abs=1e-5)


def test_a_draw_is_the_gumbel_maximum() -> None:
    logits = _logits(40, 6000, seed=3) * torch.linspace(0.1, 8, 40)[:, None]
    seeds = list(range(100, 140))
    found = _draw(logits, [Draw(row, seed, 77, PLAIN) for row, seed in enumerate(seeds)])
    noise = gumbel(row_keys(seeds, [77] * 40, Purpose.TOKEN), torch.arange(6000, dtype=torch.int32))
    assert [token for token, _ in found] == (logits + noise).argmax(-1).tolist()


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((1, 20), float("-inf"))
    logits[0, 7] = -50.0
    for params in KINDS:
        ((token, logprob),) = _draw(logits, [Draw(0, 1, 2, params)])
        assert (token, logprob) == (7, 0.0)


def test_rows_may_be_drawn_from_more_than_once_or_not_at_all() -> None:
    logits = _logits(3, 30)
    draws = [Draw(2, seed, 5, PLAIN) for seed in range(20)]
    found = _draw(logits, draws)
    assert len({token for token, _ in found}) > 1
    assert found == [_draw(logits, [draw])[0] for draw in draws]
    assert _draw(logits, []) == []
