"""The passes over a row that stand for a sort, each on its own: rank and mass of a token, and the mass of the
most likely tokens."""

import pytest
import torch
import triton
import triton.language as tl
from branchwise.kernels.gpu.launch import on_grid
from branchwise.kernels.gpu.row_filter import ranked_before, top_mass
from hypothesis import given, settings
from hypothesis import strategies as st

COLUMNS = 16
LOG2_E = 1.4426950408889634
INF = float("inf")


@triton.jit
def write_top_mass(
    row, peaks, out, peak, k, scale, vocab: tl.constexpr, parts: tl.constexpr, shift: tl.constexpr
):
    tl.store(out, top_mass(row, peaks, k, tl.load(peak), scale, vocab, parts, 16, shift))


@triton.jit
def write_rank(row, peaks, out, peak, token, scale, vocab: tl.constexpr, parts: tl.constexpr):
    logit = tl.load(row + token).to(tl.float32)
    # For Triton's types a function called by a kernel does not return.
    found = ranked_before(row, peaks, logit, token, tl.load(peak), scale, vocab, parts, 16)
    count, mass = found  # pyright: ignore[reportGeneralTypeIssues]
    tl.store(out, count.to(tl.float32))
    tl.store(out + 1, mass)


def part_peaks(row: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.max() for part in row.float().split(COLUMNS)])


def found_mass(
    row: torch.Tensor, k: int, temperature: float, *, peaks: torch.Tensor | None = None, at: int | None = None
) -> float:
    """With `peaks`, the maxima of the parts as given, of which `at` is the row's."""
    peaks = part_peaks(row) if peaks is None else peaks
    peak = peaks.max() if at is None else peaks[at]
    out, shift = torch.empty(1), 16 if row.dtype == torch.bfloat16 else 0
    sizes = {"vocab": len(row), "parts": len(peaks)}
    on_grid(write_top_mass, 1)(row, peaks, out, peak, k, LOG2_E / temperature, shift=shift, **sizes)
    return float(out)


def exact_mass(row: torch.Tensor, k: int, temperature: float) -> float:
    scores = (row.double() - row.double().max()) / temperature
    return float(scores.sort(descending=True).values[:k].exp().sum())


@st.composite
def row_of_logits(draw: st.DrawFn) -> torch.Tensor:
    """Of both signs, with equal and with impossible ones; fp32 or bf16."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    row = torch.randn(draw(st.integers(3, 60)), generator=generator) * draw(
        st.sampled_from([0.05, 1.0, 30.0])
    )
    row += draw(st.sampled_from([-40.0, 0.0, 40.0]))
    if draw(st.booleans()):
        row = row.round()
    if draw(st.booleans()):
        row[torch.rand(row.shape, generator=generator) < 0.6] = -INF
        row[0] = -1.0
    return row.to(draw(st.sampled_from([torch.float32, torch.bfloat16])))


@settings(max_examples=30)
@given(row=row_of_logits(), data=st.data())
def test_the_mass_of_the_most_likely_tokens(row: torch.Tensor, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(row) - 1))
    temperature = data.draw(st.sampled_from([0.5, 1.0, 8.0]))
    assert found_mass(row, k, temperature) == pytest.approx(exact_mass(row, k, temperature), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 3, 17, 18, 25, 33, 39])
def test_the_mass_counts_equal_logits_at_the_border_once_each(dtype: torch.dtype, k: int) -> None:
    row = torch.tensor([-3.5, -1.25] * 9 + [-1.25] * 8 + [-INF] * 6 + [-2.0] * 8).to(dtype)
    assert found_mass(row, k, 1.0) == pytest.approx(exact_mass(row, k, 1.0), rel=1e-6)


def test_zeros_of_both_signs_are_equal() -> None:
    """A maximum of both may have either sign."""
    row = torch.tensor([-0.0, 0.0, -0.0, -1.0, 0.0, -2.0] * 4)
    peaks = torch.tensor([-0.0, 0.0])
    for k in (2, 9, 16, 17):
        for at in (0, 1):
            assert found_mass(row, k, 1.0, peaks=peaks, at=at) == pytest.approx(exact_mass(row, k, 1.0))


@settings(max_examples=40)
@given(row=row_of_logits(), data=st.data())
def test_rank_and_mass_before_a_token(row: torch.Tensor, data: st.DataObject) -> None:
    token = data.draw(st.integers(0, len(row) - 1))
    order = row.double().sort(descending=True, stable=True).indices.tolist()
    rank = order.index(token)
    out, peaks = torch.empty(2), part_peaks(row)
    sizes = {"vocab": len(row), "parts": len(peaks)}
    on_grid(write_rank, 1)(row, peaks, out, peaks.max(), token, LOG2_E, **sizes)
    assert int(out[0]) == rank
    assert float(out[1]) == pytest.approx(exact_mass(row, rank, 1.0) if rank else 0.0, rel=1e-5, abs=1e-12)
