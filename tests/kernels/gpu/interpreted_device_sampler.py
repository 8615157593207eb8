"""The sampler of a GPU draws the tokens of the CPU's, whatever the draws ask for."""

import random

import pytest
import torch
from branchwise.engine.models.fused import fused_rows
from branchwise.engine.sampling.device_sampler import DeviceSampler
from branchwise.engine.sampling.drafting import Proposal
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.rules import row_rules
from branchwise.engine.sampling.sampler import NoToken, Sampler, Token
from branchwise.engine.sampling.target import Draw
from branchwise.kernels.triton_drawing import TritonDrawing
from branchwise.kernels.triton_linear import TritonLinear

VOCAB = 96
CPU = torch.device("cpu")
PARAMS = (
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, top_k=7),
    SamplingParams(temperature=1.2, top_k=20, top_p=0.7, min_p=0.05),
    SamplingParams(temperature=1.0, top_k=1, top_logprobs=3, stats_top_k=4, processed_logprobs=True),
)


def samplers() -> tuple[Sampler, DeviceSampler]:
    return Sampler(VOCAB, CPU), DeviceSampler(VOCAB, CPU, TritonDrawing(CPU))


def some_draws(rng: random.Random, rows: int, *, proposals: bool = False) -> list[Draw]:
    draws = []
    for row in range(rows):
        proposal: Proposal | None = None
        if proposals:
            q = torch.rand(VOCAB).softmax(0) if row % 2 else None
            proposal = Proposal(rng.randrange(VOCAB), q)
        draws.append(
            Draw(row, rng.getrandbits(63), rng.randrange(5000), rng.choice(PARAMS), proposal=proposal)
        )
    return draws


def tokens(found: list[Token | NoToken]) -> list[int]:
    return [one.id if isinstance(one, Token) else -1 for one in found]


def test_mixed_draws_their_logprobs_and_details():
    rng = random.Random(1)
    torch.manual_seed(1)
    host, device = samplers()
    for rows in (1, 9, 20):
        logits, draws = torch.randn(rows, VOCAB) * 3, some_draws(rng, rows)
        expected, found = host.draw(logits, draws), device.draw(logits, draws)
        assert tokens(found) == tokens(expected)
        for one, other in zip(found, expected, strict=True):
            assert isinstance(one, Token)
            assert isinstance(other, Token)
            assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
            assert (one.detail is None) == (other.detail is None)


def asking(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Token], list[Token]]:
    """What draws that ask for statistics get of each sampler, under rules and without; the device's must not
    go through the rows one by one."""
    torch.manual_seed(5)
    host, device = samplers()
    logits = torch.randn(6, VOCAB) * 3
    params = [SamplingParams(temperature=0.9, top_k=12 * (k % 2), stats_top_k=k) for k in (1, 4, 200, 7)]
    params += [SamplingParams(logit_bias={3: 4.0, 5: float("-inf")}, stats_top_k=9), SamplingParams()]
    draws = [
        Draw(row, 70 + row, 11, one, rules=row_rules(one, (), 0, None)) for row, one in enumerate(params)
    ]
    both = []
    for chosen in (draws[:4], draws):
        expected = host.draw(logits[: len(chosen)], chosen)
        with monkeypatch.context() as patch:
            patch.setattr("branchwise.engine.sampling.telling.token_stats", None)
            both.append((device.draw(logits[: len(chosen)], chosen), expected))
    (few, few_expected), (all_of, all_expected) = both
    return [*few, *all_of], [*few_expected, *all_expected]


def test_statistics_are_those_that_the_kernel_found_in_passing(monkeypatch: pytest.MonkeyPatch):
    for one, other in zip(*asking(monkeypatch), strict=True):
        assert one.id == other.id
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
        if other.detail is None:
            assert one.detail is None
        else:
            assert one.detail is not None
            assert one.detail.stats == pytest.approx(other.detail.stats, rel=1e-4, abs=1e-4)


def test_what_is_told_of_a_row_has_the_same_bits_beside_one_that_rules_change(
    monkeypatch: pytest.MonkeyPatch,
):
    found, _ = asking(monkeypatch)
    assert found[:4] == found[4:8]


def test_several_draws_of_one_row_and_rows_that_nobody_draws_from():
    host, device = samplers()
    torch.manual_seed(2)
    logits = torch.randn(5, VOCAB)
    draws = [Draw(row, seed, 7, PARAMS[1]) for seed, row in enumerate([3, 3, 0, 3])]
    assert tokens(device.draw(logits, draws)) == tokens(host.draw(logits, draws))
    assert device.draw(logits, []) == []


def test_the_ratio_test_of_proposals_with_and_without_a_distribution():
    rng = random.Random(3)
    torch.manual_seed(3)
    host, device = samplers()
    logits, draws = torch.randn(12, VOCAB) * 2, some_draws(rng, 12, proposals=True)
    assert tokens(device.draw(logits, draws)) == tokens(host.draw(logits, draws))


def test_logits_that_are_not_finite_draw_nothing():
    _, device = samplers()
    logits = torch.randn(3, VOCAB)
    logits[1, 5] = float("nan")
    found = device.draw(logits, [Draw(row, 4, 9, PARAMS[1]) for row in range(3)])
    assert [isinstance(one, NoToken) for one in found] == [False, True, False]
    bad = found[1]
    assert isinstance(bad, NoToken)
    assert not bad.finite


def test_draws_without_logits_are_those_with_them_and_the_rest_is_left_to_logits():
    torch.manual_seed(4)
    _, device = samplers()
    linear = TritonLinear(torch.randn(VOCAB, 32))
    head = fused_rows(linear, lambda hidden: hidden)
    hidden = torch.randn(6, 32)
    rows = [5, 0, 2]
    draws = [Draw(index, 31 * index, 40 + index, PARAMS[index % 2]) for index in range(3)]
    found = device.draw_fused(head, hidden, rows, draws)
    assert found is not None
    assert tokens(found) == tokens(device.draw(linear.wide(hidden[rows]), draws))
    assert device.draw_fused(None, hidden, rows, draws) is None
    assert device.draw_fused(head, hidden, rows, [*draws[:2], Draw(2, 1, 1, PARAMS[2])]) is None
    assert device.draw_fused(head, hidden, rows, [*draws, draws[0]]) is None
