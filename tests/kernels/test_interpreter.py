"""The words and values of bf16, which every corrected operation of the interpreter goes through."""

import numpy as np
import pytest
import torch
from branchwise.kernels.interpreter import rounded, widened
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.integers(0, 2**16 - 2)


def torch_words(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)


def test_every_word_has_the_value_that_torch_gives_it() -> None:
    words = np.arange(2**16, dtype=np.uint16)
    theirs = torch.from_numpy(words.view(np.int16)).view(torch.bfloat16).float().numpy()
    assert np.array_equal(widened(words).view(np.uint32), theirs.view(np.uint32))


def test_every_number_among_the_words_comes_back() -> None:
    words = np.arange(2**16, dtype=np.uint16)
    values = widened(words)
    number = ~np.isnan(values)
    assert np.array_equal(rounded(values)[number], words[number])
    assert np.isnan(widened(rounded(values[~number]))).all()


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=50))
def test_rounds_as_torch_does(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    assert np.array_equal(rounded(array), torch_words(array))


@given(WORDS)
def test_a_value_between_two_words_goes_to_the_nearer_and_a_tie_to_the_even_one(word: int) -> None:
    low = np.uint32(word << 16)
    bits = np.array([low + 0x7FFF, low + 0x8000, low + 0x8001], dtype=np.uint32)
    values = bits.view(np.float32)
    if np.isnan(values).any():
        return
    even = word if word % 2 == 0 else word + 1
    assert rounded(values).tolist() == [word, even, word + 1]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (float("inf"), 0x7F80),
        (float("-inf"), 0xFF80),
        (3.4e38, 0x7F80),  # past the largest of bf16, 3.39e38, by more than half a step
        (1e-45, 0x0000),
        (9.2e-41, 0x0001),  # the smallest subnormal of bf16
        (1.00390625, 0x3F80),
        (1.01171875, 0x3F82),
    ],
)
def test_rounds_the_edges(value: float, word: int) -> None:
    array = np.array([value], dtype=np.float32)
    assert rounded(array)[0] == word == torch_words(array)[0]


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000, 0xFF800001, 0xFFFFFFFF, 0x7FFFFFFF])
def test_nan_stays_nan(bits: int) -> None:
    values = np.array([bits], dtype=np.uint32).view(np.float32)
    assert np.isnan(widened(rounded(values))).all()


def test_the_shape_is_kept() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert rounded(values[:, ::2]).shape == (2, 2, 4)
    assert np.array_equal(widened(rounded(values[:, ::2])), values[:, ::2])
