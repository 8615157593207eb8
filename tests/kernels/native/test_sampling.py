"""The native draw against the race in torch."""

import ctypes

import pytest
import torch
from branchwise.kernels.native.sampling import NativeDrawing
from branchwise.kernels.noise import Purpose, exponential, row_keys


@pytest.mark.parametrize("vocab", [3, 16, 50, 6001])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_tokens_are_those_of_the_torch_race(native: ctypes.CDLL, vocab: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(8, vocab, generator=generator) * torch.linspace(0.0, 9, 8)[:, None] - 30
    logits = logits.repeat(20, 1)
    keys = row_keys([2**64 - 1 - 7919 * i for i in range(160)], list(range(160)), Purpose.TOKEN)
    weights = ((logits - logits.amax(-1, keepdim=True)) / temperature).double().exp()
    noise = exponential(keys, torch.arange(vocab, dtype=torch.int32)).double()
    drawn = NativeDrawing(native).tokens(logits, keys, [temperature] * 160)
    assert torch.equal(drawn, (weights / noise).argmax(-1))


@pytest.mark.parametrize("vocab", [1, 16, 50, 6001])
def test_normalisers(native: ctypes.CDLL, vocab: int) -> None:
    logits = torch.randn(5, vocab, generator=torch.Generator().manual_seed(0)) * 9
    logits[1, 0] = float("-inf")
    logits[2] += 1000
    logits[3, 0] = float("nan")
    found = NativeDrawing(native).normaliser(logits)
    expected = logits.double().logsumexp(-1)
    if vocab == 1:
        expected[1] = float("nan")  # a row of nothing but -inf is no distribution
    torch.testing.assert_close(found.double(), expected, rtol=2e-7, atol=1e-5, equal_nan=True)


def test_results_do_not_depend_on_threads(native: ctypes.CDLL) -> None:
    drawing = NativeDrawing(native)
    logits = torch.randn(30, 5000, generator=torch.Generator().manual_seed(0))
    keys = row_keys(list(range(30)), [5] * 30, Purpose.TOKEN)
    alone = drawing.tokens(logits, keys, [0.8] * 30), drawing.normaliser(logits)
    torch.set_num_threads(2)
    try:
        found = drawing.tokens(logits, keys, [0.8] * 30), drawing.normaliser(logits)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))
