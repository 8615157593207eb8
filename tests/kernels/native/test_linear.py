"""The native product against float64, and row by row against itself."""

import ctypes

import pytest
import torch
from branchwise.kernels.native.linear import NativeLinear, multiplies

SHAPES = [(48, 32), (100, 64), (1, 16), (49, 130), (315, 176)]


def _made(
    native: ctypes.CDLL, shape: tuple[int, int], dtype: torch.dtype, bias: bool = True
) -> tuple[NativeLinear, torch.Tensor, torch.Tensor | None]:
    weight = torch.randn(shape).mul_(0.2).to(dtype)
    if not multiplies(native, weight):
        pytest.skip("no products in this dtype on this processor")
    offset = torch.randn(shape[0]).to(dtype) if bias else None
    return NativeLinear(native, weight, offset), weight, offset


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 5, 8, 31])
def test_equals_the_exact_product(
    native: ctypes.CDLL, shape: tuple[int, int], dtype: torch.dtype, rows: int
) -> None:
    torch.manual_seed(rows)
    linear, weight, bias = _made(native, shape, dtype)
    assert bias is not None
    x, residual = torch.randn(rows, shape[1]).to(dtype), torch.randn(rows, shape[0]).to(dtype)
    exact = x.double() @ weight.double().T + bias.double()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(linear(x).double(), exact, rtol=tolerance, atol=tolerance)
    summed = linear.added(x, residual.clone())
    torch.testing.assert_close(summed.double(), exact + residual.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_keeps_its_bits(native: ctypes.CDLL, shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Alone or among any number of rows, at any place, with any number of threads."""
    torch.manual_seed(0)
    linear, _, _ = _made(native, shape, dtype, bias=False)
    x = torch.randn(45, shape[1]).to(dtype)
    together = linear(x)
    for rows in (1, 2, 7, 8, 16, 20):
        for first in range(0, 45 - rows, 6):
            assert torch.equal(linear(x[first : first + rows]), together[first : first + rows])
    torch.set_num_threads(2)
    try:
        assert torch.equal(linear(x), together)
    finally:
        torch.set_num_threads(1)


def test_rows_may_lie_apart(native: ctypes.CDLL) -> None:
    torch.manual_seed(0)
    linear, _, _ = _made(native, (50, 32), torch.float32)
    wide = torch.randn(9, 71)
    assert torch.equal(linear(wide[:, :32]), linear(wide[:, :32].contiguous()))
