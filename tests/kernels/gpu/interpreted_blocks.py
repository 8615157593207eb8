"""Copies and clears of KV blocks in the interpreter: exact, and nothing else is touched."""

from pathlib import Path

import pytest
import torch
from branchwise.kernels.gpu.blocks import clear_blocks, copy_blocks
from branchwise.kernels.plain import blocks as plain
from hypothesis import given, settings
from hypothesis import strategies as st

BLOCKS = 6


@st.composite
def moves(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Sources and targets: no target is a source or twice there, some are padding."""
    order = draw(st.permutations(range(BLOCKS)))
    sources = order[: draw(st.integers(1, 3))]
    targets = [draw(st.sampled_from([target, -1])) for target in order[3:]]
    return [draw(st.sampled_from(sources)) for _ in targets], targets


def pool_of(dtype: torch.dtype, size: int = 2, dim: int = 6) -> torch.Tensor:
    return torch.randn(2, 2, BLOCKS, 3, size, dim).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@settings(max_examples=15)
@given(move=moves())
def test_copies_blocks_in_all_layers(dtype: torch.dtype, move: tuple[list[int], list[int]]) -> None:
    sources, targets = (torch.tensor(blocks) for blocks in move)
    pool = pool_of(dtype)
    expected = pool.clone()
    plain.copy_blocks(expected, sources, targets)
    copy_blocks(pool, sources, targets)
    assert torch.equal(pool, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_clears_blocks_in_all_layers(dtype: torch.dtype) -> None:
    pool, targets = pool_of(dtype), torch.tensor([4, -1, 0], dtype=torch.int32)
    pool[:, :, 4] = float("nan")
    expected = pool.clone()
    plain.clear_blocks(expected, targets)
    clear_blocks(pool, targets)
    assert torch.equal(pool, expected)
    assert not pool[:, :, [0, 4]].any()


def test_blocks_longer_than_a_program_are_moved_whole() -> None:
    pool = pool_of(torch.bfloat16, size=64, dim=48)
    expected = pool.clone()
    plain.copy_blocks(expected, torch.tensor([1]), torch.tensor([5]))
    copy_blocks(pool, torch.tensor([1]), torch.tensor([5]))
    assert torch.equal(pool, expected)


def test_no_blocks_are_no_launch() -> None:
    pool = pool_of(torch.float32)
    expected = pool.clone()
    nothing = torch.empty(0, dtype=torch.int64)
    copy_blocks(pool, nothing, nothing)
    clear_blocks(pool, nothing)
    assert torch.equal(pool, expected)


def test_blocks_beyond_two_to_the_31_words_are_reached(tmp_path: Path) -> None:
    """A pool of 17.2 GB in a file of which only the written pages are there."""
    blocks = 2**31 // 64 + 3
    pool = torch.from_file(str(tmp_path / "pool"), shared=True, size=2 * blocks * 64, dtype=torch.float32)
    pool = pool.view(1, 2, blocks, 1, 4, 16)
    pool[:, :, 1] = 7.0
    copy_blocks(pool, torch.tensor([1]), torch.tensor([blocks - 1]))
    assert bool((pool[:, :, blocks - 1] == 7.0).all())


def test_a_block_of_half_a_word_is_refused() -> None:
    pool = torch.zeros(1, 2, 4, 1, 1, 1, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="4-byte words"):
        clear_blocks(pool, torch.tensor([0]))
