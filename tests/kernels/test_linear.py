import pytest
import torch
from branchwise.kernels.linear import ROW_TILE, Linear
from torch.nn import functional

SHAPES = [(128, 384), (128, 105), (352, 128), (128, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_row_keeps_its_bits_anywhere_in_any_batch(dtype: torch.dtype, inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    linear = Linear(torch.randn(outputs, inputs).to(dtype), torch.randn(outputs).to(dtype))
    x = torch.randn(96, inputs).to(dtype)
    residual = torch.randn(96, outputs).to(dtype)
    base, sums = linear(x, ROW_TILE), linear.added(x, residual.clone(), ROW_TILE)
    for trial in range(20):
        count = int(torch.randint(1, 97, ()))
        chosen = torch.randperm(96)[:count]
        padded = torch.cat((x[chosen], torch.zeros(-count % ROW_TILE, inputs, dtype=dtype)))
        # Results must not depend on threads either; two are enough to split a product differently.
        torch.set_num_threads(1 + trial % 2)
        found = linear(padded, ROW_TILE)[:count]
        rest = torch.cat((residual[chosen], torch.zeros(-count % ROW_TILE, outputs, dtype=dtype)))
        added = linear.added(padded, rest, ROW_TILE)[:count]
        torch.set_num_threads(1)
        assert torch.equal(found, base[chosen])
        assert torch.equal(added, sums[chosen])


def test_equals_a_plain_product() -> None:
    torch.manual_seed(0)
    weight, bias, x, residual = torch.randn(24, 40), torch.randn(24), torch.randn(33, 40), torch.randn(33, 24)
    linear = Linear(weight, bias)
    expected = functional.linear(x, weight, bias)
    torch.testing.assert_close(linear(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(linear.added(x, residual.clone()), expected + residual, rtol=1e-5, atol=1e-5)
    padded = torch.cat((x, torch.zeros(15, 40)))
    grown = torch.cat((residual, torch.zeros(15, 24)))
    torch.testing.assert_close(
        linear.added(padded, grown, ROW_TILE)[:33], expected + residual, rtol=1e-5, atol=1e-5
    )
