"""The LM head kernels: the sampler's token without logits in memory, and scores that float64 confirms."""

import pytest
import torch
from branchwise.kernels.drawn import Drawn, Scored
from branchwise.kernels.gpu import lmhead_lse as scoring
from branchwise.kernels.gpu.lmhead_sample import lmhead_sample
from branchwise.kernels.gpu.sample_rows import sample_rows
from branchwise.kernels.noise import Purpose, row_keys
from branchwise.kernels.plain import lmhead as plain
from hypothesis import given, settings
from hypothesis import strategies as st

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 6e-3}
DTYPES = list(TOLERANCE)


def head(
    rows: int, vocab: int, width: int, dtype: torch.dtype, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden rows and a weight with logits of a spread of about 2."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator)
    weight = torch.randn(vocab, width, generator=generator) * (2 / width**0.5)
    return hidden.to(dtype), weight.to(dtype)


def exact_head(
    rows: int, vocab: int, width: int, dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Small integers over 8: every sum is exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randint(-3, 4, (rows, width), generator=generator)
    weight = torch.randint(-3, 4, (vocab, width), generator=generator) / 8
    return hidden.to(dtype), weight.to(dtype)


def draw_keys(rows: int) -> torch.Tensor:
    return row_keys(range(rows), range(5, 5 + rows), Purpose.TOKEN)


def temperatures(rows: int) -> torch.Tensor:
    return torch.tensor([1.0, 0.0, 0.6, 2.0, 1.0]).repeat(rows)[:rows]


def norm_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "vocab", "width"), [(1, 100, 48), (5, 300, 64), (17, 257, 16), (40, 130, 96)]
)
def test_draws_the_token_of_sample_rows(rows: int, vocab: int, width: int, dtype: torch.dtype) -> None:
    hidden, weight = exact_head(rows, vocab, width, dtype, seed=rows)
    logits = hidden.float() @ weight.float().T
    found = lmhead_sample(hidden, weight, temperatures(rows), draw_keys(rows))
    expected = sample_rows(logits, temperatures(rows), draw_keys(rows), columns=256)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.rounds, expected.rounds)
    for name in ("logprobs", "lse", "entropy", "certainty"):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), atol=1e-5, rtol=1e-6, msg=name
        )


@pytest.mark.slow
@settings(max_examples=60)
@given(
    rows=st.integers(1, 64),
    vocab=st.integers(1, 300),
    width=st.sampled_from([16, 48, 64, 128]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 999),
)
def test_draws_the_oracles_token(rows: int, vocab: int, width: int, dtype: torch.dtype, seed: int) -> None:
    hidden, weight = exact_head(rows, vocab, width, dtype, seed)
    found = lmhead_sample(hidden, weight, temperatures(rows), draw_keys(rows))
    expected = plain.lmhead_sample(hidden, weight, temperatures(rows), draw_keys(rows))
    # The oracle races with exponentials: once in many thousand rows two are as near as rounding.
    assert int((found.tokens != expected.tokens).sum()) <= 1
    torch.testing.assert_close(found.lse, expected.lse, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(found.entropy, expected.entropy, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_agree_with_float64(dtype: torch.dtype) -> None:
    hidden, weight = head(7, 290, 80, dtype)
    found = lmhead_sample(hidden, weight, temperatures(7), draw_keys(7))
    logits = hidden.double() @ weight.double().T
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(-1, found.tokens[:, None].long())[:, 0]
    assert norm_error(found.logprobs, chosen) < TOLERANCE[dtype]
    assert norm_error(found.lse, logits.logsumexp(-1)) < TOLERANCE[dtype]
    assert norm_error(found.entropy, -(logprobs.exp() * logprobs).sum(-1)) < TOLERANCE[dtype]
    certainty = -(logprobs + torch.tensor(290.0).log().double()).mean(-1)
    assert norm_error(found.certainty, certainty) < TOLERANCE[dtype]
    assert torch.equal(found.tokens[[1, 6]].long(), logits[[1, 6]].argmax(-1))


def test_a_hidden_row_that_is_not_finite_has_no_finite_logprob() -> None:
    hidden, weight = head(3, 140, 32, torch.float32)
    hidden[1, 4] = float("nan")
    found = lmhead_sample(hidden, weight, torch.ones(3), draw_keys(3))
    assert found.logprobs.isfinite().tolist() == [True, False, True]


def test_hidden_rows_may_lie_apart_and_outputs_may_be_given() -> None:
    hidden, weight = head(4, 140, 32, torch.float32)
    wide = torch.full((4, 50), float("nan"))
    wide[:, :32] = hidden
    out = Drawn.empty(4, CPU)
    assert lmhead_sample(wide[:, :32], weight, torch.ones(4), draw_keys(4), out=out) is out
    assert torch.equal(out.tokens, lmhead_sample(hidden, weight, torch.ones(4), draw_keys(4)).tokens)
    scored, targets = Scored.empty(4, CPU), torch.tensor([0, 139, 7, 128])
    assert scoring.lmhead_lse(wide[:, :32], weight, targets, out=scored) is scored
    assert torch.equal(scored.lse, scoring.lmhead_lse(hidden, weight, targets).lse)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "vocab", "width"), [(1, 1, 16), (130, 300, 64), (70, 128, 48)])
def test_scores_agree_with_float64(rows: int, vocab: int, width: int, dtype: torch.dtype) -> None:
    hidden, weight = head(rows, vocab, width, dtype)
    targets = torch.arange(rows) * 7 % vocab
    found = scoring.lmhead_lse(hidden, weight, targets)
    logits = hidden.double() @ weight.double().T
    expected = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    torch.testing.assert_close(found.lse.double(), logits.logsumexp(-1), atol=1e-5, rtol=TOLERANCE[dtype])
    torch.testing.assert_close(found.logprobs.double(), expected, atol=1e-5, rtol=TOLERANCE[dtype])


def test_scores_of_many_rows_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight = head(150, 140, 16, torch.float32)
    targets = torch.arange(150, dtype=torch.int32) % 140
    whole = scoring.lmhead_lse(hidden, weight, targets)
    monkeypatch.setattr(scoring, "CHUNK", 64)
    parts = scoring.lmhead_lse(hidden, weight, targets)
    assert torch.equal(whole.logprobs, parts.logprobs)
    assert torch.equal(whole.lse, parts.lse)
    torch.testing.assert_close(whole.logprobs, plain.lmhead_lse(hidden, weight, targets).logprobs)
    assert scoring.lmhead_lse(hidden[:0], weight, targets[:0]).lse.shape == (0,)
