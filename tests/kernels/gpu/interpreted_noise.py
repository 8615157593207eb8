"""The noise of the Triton kernels is that of the torch code: hash and uniform values bit for bit."""

import pytest
import torch
import triton
import triton.language as tl
from branchwise.kernels import noise
from branchwise.kernels.gpu.launch import on_grid
from branchwise.kernels.gpu.noise import exponential, noise_bits, uniform
from branchwise.kernels.noise import Purpose, reference_hash, row_keys
from hypothesis import given, settings
from hypothesis import strategies as st

GOLDEN = [
    (0x0, 0, 0, Purpose.TOKEN, 0xF8786E3A),
    (0x1, 1, 0, Purpose.TOKEN, 0x4CEE4444),
    (0x1, 0, 0, Purpose.DRAFT, 0x0A43A96F),
    (0xFFFFFFFFFFFFFFFF, 511, 104, Purpose.TOKEN, 0x902BE350),
    (0x123456789ABCDEF, 4096, 151642, Purpose.ACCEPT, 0x756F9B88),
]


@triton.jit
def write_noise(keys, tokens, bits, uniforms, exponentials, block: tl.constexpr):
    at = tl.arange(0, block)
    token = tl.load(tokens + at)
    first, second = tl.load(keys), tl.load(keys + 1)
    tl.store(bits + at, noise_bits(first, second, token).to(tl.int32, bitcast=True))
    tl.store(uniforms + at, uniform(first, second, token))
    tl.store(exponentials + at, exponential(first, second, token))


def noise_of(keys: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hash, uniform and exponential values of one row, in the interpreter."""
    count = tokens.shape[0]
    bits = torch.empty(count, dtype=torch.int32)
    uniforms, exponentials = torch.empty(count), torch.empty(count)
    on_grid(write_noise, 1)(keys.contiguous(), tokens, bits, uniforms, exponentials, block=count)
    return bits, uniforms, exponentials


@pytest.mark.parametrize(("seed", "position", "token", "purpose", "value"), GOLDEN)
def test_hash_has_the_golden_values(
    seed: int, position: int, token: int, purpose: Purpose, value: int
) -> None:
    bits, _, _ = noise_of(row_keys([seed], [position], purpose), torch.tensor([token], dtype=torch.int32))
    assert int(bits[0]) & 0xFFFFFFFF == value


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**32 - 1),
    start=st.integers(0, 2**31 - 300),
    purpose=st.sampled_from(Purpose),
)
def test_noise_equals_the_reference(seed: int, position: int, start: int, purpose: Purpose) -> None:
    keys = row_keys([seed], [position], purpose)
    tokens = torch.arange(start, start + 256, dtype=torch.int32)
    bits, uniforms, exponentials = noise_of(keys, tokens)
    assert int(bits[3]) & 0xFFFFFFFF == reference_hash(seed, position, start + 3, purpose)
    assert torch.equal(uniforms, noise.uniform(keys, tokens)[0])
    expected = -torch.log1p(-noise.uniform(keys, tokens)[0].double())
    torch.testing.assert_close(exponentials.double(), expected, rtol=4e-7, atol=0.0)


def test_small_exponential_values_keep_their_digits() -> None:
    keys = row_keys([5], [7], Purpose.TOKEN)
    tokens = torch.arange(1 << 17, dtype=torch.int32)
    _, uniforms, exponentials = noise_of(keys, tokens)
    smallest = uniforms.argsort()[:50]
    assert uniforms[smallest[0]] < 1e-4
    expected = -torch.log1p(-uniforms[smallest].double())
    torch.testing.assert_close(exponentials[smallest].double(), expected, rtol=2e-7, atol=0.0)
