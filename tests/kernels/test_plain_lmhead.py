"""The torch oracle of the LM head kernels: the sampler's tokens and float64's scores."""

import pytest
import torch
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.sampler import Sampler, Token
from branchwise.engine.sampling.target import Draw
from branchwise.kernels.drawn import Scored
from branchwise.kernels.noise import Purpose, row_keys
from branchwise.kernels.plain.lmhead import lmhead_lse, lmhead_sample

CPU = torch.device("cpu")


def head(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, 48, generator=generator)
    return hidden.to(dtype), (torch.randn(700, 48, generator=generator) / 4).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_the_samplers_token(dtype: torch.dtype) -> None:
    hidden, weight = head(40, dtype)
    temperatures = [0.0, 1.0, 0.5, 1.7] * 10
    keys = row_keys(range(40), range(40), Purpose.TOKEN)
    found = lmhead_sample(hidden, weight, torch.tensor(temperatures), keys)
    draws = [Draw(row, row, row, SamplingParams(temperature=one)) for row, one in enumerate(temperatures)]
    expected = Sampler(700, CPU).draw(hidden.float() @ weight.float().T, draws)
    assert found.tokens.tolist() == [one.id for one in expected if isinstance(one, Token)]
    logprobs = torch.tensor([one.logprob for one in expected if isinstance(one, Token)])
    torch.testing.assert_close(found.logprobs, logprobs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_agree_with_float64(dtype: torch.dtype) -> None:
    hidden, weight = head(300, dtype)
    targets = torch.arange(300) * 11 % 700
    out = Scored.empty(300, CPU)
    assert lmhead_lse(hidden, weight, targets, out=out) is out
    expected = (hidden.double() @ weight.double().T).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    torch.testing.assert_close(out.logprobs.double(), expected, atol=1e-5, rtol=1e-5)
    assert lmhead_lse(hidden[:0], weight, targets[:0]).lse.shape == (0,)
