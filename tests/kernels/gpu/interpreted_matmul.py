"""The fixed product in the interpreter: near float64, and a row's bits are its own."""

import pytest
import torch
from branchwise.kernels.fixed_linear import FixedLinear
from branchwise.kernels.gpu.matmul import multiply, tile_for
from branchwise.kernels.plain import matmul as plain
from branchwise.kernels.scratch import Scratch
from branchwise.kernels.triton_linear import TritonLinear
from support.closeness import relative_error

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 6e-3}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
SHAPES = pytest.mark.parametrize(("inputs", "outputs"), [(128, 40), (100, 33), (24, 64)])


def operands(inputs: int, outputs: int, rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """x, weight, bias and residual."""
    torch.manual_seed(0)
    shapes = [(rows, inputs), (outputs, inputs), (outputs,), (rows, outputs)]
    return [torch.randn(shape).to(dtype) for shape in shapes]


@DTYPES
@SHAPES
def test_is_near_float64(inputs: int, outputs: int, dtype: torch.dtype) -> None:
    x, weight, bias, residual = operands(inputs, outputs, 5, dtype)
    linear, plainly = FixedLinear(weight, bias), FixedLinear(weight)
    step = tile_for(outputs, dtype).features
    exact = plain.multiply(x, weight, bias, None, step, torch.float64, inside=torch.float64)
    assert relative_error(linear(x), exact) < TOLERANCE[dtype]
    assert relative_error(linear.wide(x), exact) < TOLERANCE[torch.float32]
    assert relative_error(linear.added(x, residual.clone()), exact + residual) < TOLERANCE[dtype]
    assert relative_error(plainly.wide(x), exact - bias.double()) < TOLERANCE[torch.float32]


@DTYPES
def test_equals_the_plain_product_with_its_rounding(dtype: torch.dtype) -> None:
    x, weight, bias, residual = operands(100, 33, 5, dtype)
    step = tile_for(33, dtype).features
    expected = plain.multiply(x, weight, bias, residual, step, dtype)
    found = multiply(x, weight, bias, residual, torch.empty_like(residual))
    torch.testing.assert_close(found, expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


@DTYPES
@SHAPES
def test_a_row_keeps_its_bits_in_any_batch(inputs: int, outputs: int, dtype: torch.dtype) -> None:
    x, weight, bias, residual = operands(inputs, outputs, 70, dtype)
    linear = FixedLinear(weight, bias)
    whole, wide, sums = linear(x), linear.wide(x).clone(), linear.added(x, residual.clone())
    for rows in (1, 3, 17):
        for _ in range(3):
            chosen = torch.randperm(70)[:rows]
            assert torch.equal(linear(x[chosen]), whole[chosen])
            assert torch.equal(linear.wide(x[chosen]), wide[chosen])
            assert torch.equal(linear.added(x[chosen], residual[chosen]), sums[chosen])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "dtype"),
    [(576, torch.float32), (576, torch.bfloat16), (8192, torch.bfloat16), (16384, torch.bfloat16)],
)
def test_a_row_keeps_its_bits_with_each_tile(outputs: int, dtype: torch.dtype) -> None:
    x, weight, bias, _ = operands(192, outputs, 70, dtype)
    linear = FixedLinear(weight, bias)
    whole = linear(x).clone()
    assert relative_error(whole, x.double() @ weight.double().T + bias) < TOLERANCE[dtype]
    for rows in (1, 3, 17):
        chosen = torch.randperm(70)[:rows]
        assert torch.equal(linear(x[chosen]), whole[chosen])


def test_the_tile_follows_from_the_weight_alone() -> None:
    narrow, middle, wide = (tile_for(outputs, torch.bfloat16) for outputs in (4096, 8192, 16384))
    assert narrow.outputs < middle.outputs < wide.outputs
    assert {tile.rows for tile in (narrow, middle, wide)} == {64}


@DTYPES
def test_neighbours_that_are_not_finite_change_nothing(dtype: torch.dtype) -> None:
    x, weight, _, _ = operands(64, 40, 9, dtype)
    linear = FixedLinear(weight)
    alone = linear(x[:1])
    x[1:] = float("nan")
    assert torch.equal(linear(x)[:1], alone)


def test_results_lie_where_they_were_asked_for() -> None:
    x, weight, _, residual = operands(32, 40, 5, torch.float32)
    linear, work = FixedLinear(weight), Scratch()
    assert linear(x, None, work).data_ptr() == work.take("product", (5, 40), torch.float32).data_ptr()
    assert linear.added(x, residual).data_ptr() == residual.data_ptr()
    assert linear.wide(x).data_ptr() == linear.wide(x[:2]).data_ptr()


@DTYPES
def test_wide_products_of_any_number_of_rows_lie_in_one_memory(dtype: torch.dtype) -> None:
    x, weight, bias, _ = operands(32, 40, 5, dtype)
    linear = TritonLinear(weight, bias)
    exact = x.double() @ weight.double().T + bias
    places = {linear.wide(x).data_ptr()}
    for rows, row_tile in ((1, None), (3, 16), (5, 16), (5, None)):
        found = linear.wide(x[:rows], row_tile)
        places.add(found.data_ptr())
        assert found.dtype == torch.float32
        assert relative_error(found, exact[:rows]) < TOLERANCE[dtype]
    assert len(places) == 1


def test_no_rows_are_no_product() -> None:
    _, weight, _, _ = operands(32, 40, 1, torch.float32)
    assert FixedLinear(weight)(torch.empty(0, 32)).shape == (0, 40)


def test_rows_may_lie_apart() -> None:
    x, weight, _, _ = operands(32, 40, 6, torch.float32)
    linear = FixedLinear(weight)
    assert torch.equal(linear(x[::2]), linear(x)[::2])
