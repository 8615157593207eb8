"""Token statistics against values worked out by hand, and against their definitions."""

import math

import pytest
import torch
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.sampler import Sampler, Token
from branchwise.engine.sampling.stats import Sureness, alternatives, completed_stats, token_stats
from branchwise.engine.sampling.target import Draw
from msgspec.structs import replace
from support.sampling import token_stats as stated_stats

CPU = torch.device("cpu")
LN2 = math.log(2)


@pytest.mark.parametrize(
    ("probabilities", "k", "expected"),
    [
        # Entropy 1/2 + 2/4 + 2 * 3/8 bits; KL(uniform || p) = -1/4 (ln 2 + ln 1 + 2 ln 1/2); of the first
        # two, -ln p is 1 and 2 bits.
        ([1 / 2, 1 / 4, 1 / 8, 1 / 8], 2, (1.75 * LN2, LN2 / 4, 1.5 * LN2)),
        # Flat: no certainty, entropy ln V.
        ([1 / 8] * 8, 3, (3 * LN2, 0.0, 3 * LN2)),
        # k beyond the vocabulary takes all of it.
        ([1 / 2, 1 / 2], 20, (LN2, 0.0, LN2)),
    ],
)
@pytest.mark.parametrize("shift", [0.0, 300.0, -300.0])
def test_golden_rows(
    probabilities: list[float], k: int, expected: tuple[float, float, float], shift: float
) -> None:
    row = torch.tensor(probabilities, dtype=torch.float64).log().add(shift).float()
    (found,) = token_stats([row], [k])
    assert found == pytest.approx(expected, abs=2e-5)


def test_a_sure_row() -> None:
    """p = (1 - 3e, e, e, e) with e = exp(-20): almost no entropy, and ln p of the rest is -20."""
    (found,) = token_stats([torch.tensor([20.0, 0.0, 0.0, 0.0])], [4])
    assert found.entropy == pytest.approx(3 * math.exp(-20) * 21, abs=1e-6)
    assert found.self_certainty == pytest.approx(15 - 2 * LN2, abs=1e-5)
    assert found.confidence == pytest.approx(15, abs=1e-5)


def test_large_rows_follow_the_definitions() -> None:
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(4)) * 3
    found = token_stats(list(logits), [20, 1, 100])
    for row, k, one in zip(logits.double().tolist(), [20, 1, 100], found, strict=True):
        assert one == pytest.approx(stated_stats(row, k), rel=1e-4)


@pytest.mark.parametrize("shift", [0.0, 40.0, -40.0])
def test_statistics_that_a_kernel_began_are_completed_to_the_same(shift: float) -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(6)) * 3 + shift
    logits[2, 100:] = float("-inf")
    counts = [20, 1, 150, 999]
    expected = token_stats(list(logits), counts)
    entropy, certainty, _ = torch.tensor(expected).T
    found = completed_stats(Sureness(entropy, certainty), logits.logsumexp(-1), logits, counts)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=2e-5)
    alone = completed_stats(
        Sureness(entropy[1:2], certainty[1:2]), logits[1:2].logsumexp(-1), logits[1:2], [1]
    )
    assert alone == found[1:2]


def test_an_impossible_token_makes_self_certainty_infinite_and_nothing_else() -> None:
    row = torch.tensor([0.0, 0.0, float("-inf")])
    (found,) = token_stats([row], [2])
    assert found == pytest.approx((LN2, math.inf, LN2))


def test_alternatives_are_raw_and_ranked() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 9.0]])
    first, second = alternatives(logits, logits.logsumexp(-1), [3, 1])
    raw = logits.double().log_softmax(-1)
    assert first.ids == (1, 3, 2)
    assert first.logprobs == pytest.approx([raw[0, token].item() for token in first.ids], abs=1e-6)
    assert second.ids == (3,)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(processed_logprobs=True), [0.4, 0.3, 0.1, 0.1, 0.1]),
        (SamplingParams(temperature=0.5, processed_logprobs=True), [16 / 28, 9 / 28, 1 / 28, 1 / 28, 1 / 28]),
        (SamplingParams(top_k=3, processed_logprobs=True), [4 / 8, 3 / 8, 1 / 8]),
        (SamplingParams(top_p=0.6, processed_logprobs=True), [4 / 7, 3 / 7]),
        (SamplingParams(temperature=0.0, processed_logprobs=True), [1.0]),
    ],
)
def test_processed_logprobs_are_those_of_the_distribution_drawn_from(
    params: SamplingParams, expected: list[float]
) -> None:
    probabilities = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64)
    draws = [Draw(0, seed, 3, params) for seed in range(400)]
    found = Sampler(5, CPU).draw(probabilities.log().float()[None], draws)
    processed: dict[int, float] = {}
    for one in found:
        assert isinstance(one, Token)
        assert one.detail is not None
        assert one.detail.processed_logprob is not None
        assert one.logprob == pytest.approx(math.log(probabilities[one.id]), abs=1e-5)
        processed[one.id] = math.exp(one.detail.processed_logprob)
    assert [processed[token] for token in sorted(processed)] == pytest.approx(expected, abs=1e-5)


def test_details_come_for_those_that_ask_alike_in_any_batch() -> None:
    logits = torch.randn(4, 900, generator=torch.Generator().manual_seed(2))
    asks = [
        SamplingParams(),
        SamplingParams(stats_top_k=20),
        SamplingParams(top_logprobs=4, processed_logprobs=True, top_p=0.9),
        SamplingParams(top_logprobs=300, temperature=0.4),
    ]
    sampler = Sampler(900, CPU)
    draws = [Draw(row, row, 9, params) for row, params in enumerate(asks)]
    together = sampler.draw(logits, draws)
    for draw, found in zip(draws, together, strict=True):
        assert sampler.draw(logits[draw.row : draw.row + 1], [replace(draw, row=0)]) == [found]
        assert isinstance(found, Token)
        assert (found.detail is not None) == draw.params.tells
