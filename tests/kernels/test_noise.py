import math

import pytest
import torch
from branchwise.kernels import noise
from branchwise.kernels.noise import Purpose, exponential, gumbel, reference_hash, row_keys, uniform
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

GOLDEN = [
    (0x0, 0, 0, Purpose.TOKEN, 0xF8786E3A),
    (0x1, 0, 0, Purpose.TOKEN, 0x56642C23),
    (0x1, 1, 0, Purpose.TOKEN, 0x4CEE4444),
    (0x1, 0, 1, Purpose.TOKEN, 0x7037A835),
    (0x1, 0, 0, Purpose.DRAFT, 0x0A43A96F),
    (0xFFFFFFFFFFFFFFFF, 511, 104, Purpose.TOKEN, 0x902BE350),
    (0x123456789ABCDEF, 4096, 151642, Purpose.ACCEPT, 0x756F9B88),
]
SEEDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("seed", "position", "token", "purpose", "value"), GOLDEN)
def test_hash_keeps_its_golden_values(
    seed: int, position: int, token: int, purpose: Purpose, value: int
) -> None:
    assert reference_hash(seed, position, token, purpose) == value


@given(
    seed=SEEDS, position=st.integers(0, 2**20), token=st.integers(0, 2**18), purpose=st.sampled_from(Purpose)
)
def test_tensor_hash_equals_the_reference(seed: int, position: int, token: int, purpose: Purpose) -> None:
    keys = row_keys([seed], [position], purpose)
    value = uniform(keys, torch.tensor([token], dtype=torch.int32)).item()
    expected = ((reference_hash(seed, position, token, purpose) & 0x7FFFFFFF) + 0.5) / 2**31
    assert value == pytest.approx(expected, rel=1e-6)
    assert gumbel(keys, torch.tensor([token], dtype=torch.int32)).item() == pytest.approx(
        -math.log(-math.log1p(-value)), rel=1e-4, abs=1e-6
    )


def test_the_device_hash_equals_the_hosts() -> None:
    keys = row_keys(range(2**63, 2**63 + 9), range(9), Purpose.TOKEN)
    tokens = torch.arange(500, dtype=torch.int32)
    assert torch.equal(noise._hash_on_device(keys, tokens), noise._hash_on_host(keys, tokens))
    each = tokens.repeat(9, 1)
    assert torch.equal(noise._hash_on_device(keys, each), noise._hash_on_host(keys, each))


def test_uniform_is_strictly_inside_the_unit_interval() -> None:
    keys = row_keys(range(64), range(64), Purpose.TOKEN)
    values = uniform(keys, torch.arange(60_000, dtype=torch.int32))
    assert values.min().item() > 0.0
    assert values.max().item() < 1.0
    assert bool(gumbel(keys, torch.arange(60_000, dtype=torch.int32)).isfinite().all())
    assert exponential(keys, torch.arange(60_000, dtype=torch.int32)).min().item() > 0.0


@given(
    seed=SEEDS, position=st.integers(0, 5000), others=st.lists(SEEDS, max_size=5), width=st.integers(1, 300)
)
def test_a_row_does_not_depend_on_its_neighbours(
    seed: int, position: int, others: list[int], width: int
) -> None:
    tokens = torch.arange(300, dtype=torch.int32)
    alone = gumbel(row_keys([seed], [position], Purpose.TOKEN), tokens[:width])[0]
    keys = row_keys([*others, seed], [*range(len(others)), position], Purpose.TOKEN)
    assert torch.equal(gumbel(keys, tokens)[-1, :width], alone)


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.03, 0.01])
    count = 20_000
    keys = row_keys(range(count), [7] * count, Purpose.TOKEN)
    tokens = (probabilities.log() + gumbel(keys, torch.arange(7, dtype=torch.int32))).argmax(-1)
    observed = torch.bincount(tokens, minlength=7).numpy()
    assert stats.chisquare(observed, (probabilities * count).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("step", ["seed", "high", "position", "token", "purpose"])
def test_neighbouring_inputs_are_uncorrelated(step: str) -> None:
    count = 40_000
    seeds, positions, purpose, token = list(range(count)), [3] * count, Purpose.TOKEN, 11
    keys = row_keys(seeds, positions, purpose)
    first = uniform(keys, torch.tensor([token], dtype=torch.int32))[:, 0]
    if step == "seed":
        keys = row_keys([seed + 1 for seed in seeds], positions, purpose)
    elif step == "high":
        keys = row_keys([seed + 2**32 for seed in seeds], positions, purpose)
    elif step == "position":
        keys = row_keys(seeds, [position + 1 for position in positions], purpose)
    elif step == "purpose":
        keys = row_keys(seeds, positions, Purpose.DRAFT)
    second = uniform(keys, torch.tensor([token + (step == "token")], dtype=torch.int32))[:, 0]
    cells = torch.histogramdd(torch.stack((first, second), 1), bins=[8, 8], range=[0.0, 1.0, 0.0, 1.0]).hist
    assert stats.chisquare(cells.flatten().numpy()).pvalue > 1e-3
    assert abs(torch.corrcoef(torch.stack((first, second)))[0, 1].item()) < 0.02


def test_positions_of_one_branch_are_uniform() -> None:
    keys = row_keys([12345] * 4096, range(4096), Purpose.TOKEN)
    values = uniform(keys, torch.arange(16, dtype=torch.int32))
    assert stats.kstest(values.flatten().numpy(), "uniform").pvalue > 1e-3
