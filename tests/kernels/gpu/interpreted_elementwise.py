"""Norm, gate and rotation in the interpreter against float64 and against `TorchElementwise`."""

from pathlib import Path

import pytest
import torch
from branchwise.kernels.elementwise import TorchElementwise
from branchwise.kernels.gpu.gate import gate_rows
from branchwise.kernels.gpu.norm import WIDEST, add_and_norm_rows, norm_rows
from branchwise.kernels.gpu.rotary import rotate_and_store
from branchwise.kernels.interface import Elementwise
from branchwise.kernels.linear import Linear
from branchwise.kernels.plain import elementwise as plain
from branchwise.kernels.triton_elementwise import TritonElementwise
from support.closeness import relative_error

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 6e-3, torch.float16: 1e-3}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
EPS = 1e-5
BLOCKS, SIZE = 7, 4


def rotation_tables(dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Tables of 40 positions as the decoder has them."""
    angles = torch.arange(40.0)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((cosine, cosine), -1).to(dtype), torch.cat((-sine, sine), -1).to(dtype)


def slots_for(stored: int, kv_heads: int) -> torch.Tensor:
    """Slots of `stored` positions as `KvCache.slots` gives them, in blocks out of order."""
    position = torch.arange(stored)
    block, offset = (position * 5 // SIZE + 1) % BLOCKS, position % SIZE
    head = torch.arange(2 * kv_heads)
    plane = head // kv_heads * (BLOCKS * kv_heads) + head % kv_heads
    return ((block[:, None] * kv_heads + plane) * SIZE + offset[:, None]).reshape(-1)


def rotation_case(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, rows: int = 5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Packed rows, positions and a pool of NaN."""
    qkv = torch.randn(rows, heads + 2 * kv_heads, dim).to(dtype)
    pool = torch.full((2, BLOCKS, kv_heads, SIZE, dim), float("nan"), dtype=dtype)
    return qkv, torch.randint(0, 40, (rows,)), pool


@DTYPES
@pytest.mark.parametrize("width", [5, 64, 384])
def test_norm_is_near_float64(dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, width + 8).mul_(3).to(dtype)[:, :width], torch.rand(width).to(dtype)
    found = norm_rows(x, weight, EPS, torch.empty(3, width, dtype=dtype))
    expected = plain.norm_rows(x.double(), weight, EPS, inside=torch.float64)
    assert relative_error(found, expected) < TOLERANCE[dtype]


def test_norm_rounds_as_torch_does() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(16, 256).bfloat16(), torch.rand(256).bfloat16()
    found = norm_rows(x, weight, EPS, torch.empty_like(x))
    expected = torch.nn.functional.rms_norm(x, (256,), weight, EPS)
    assert (found == expected).float().mean() > 0.999
    assert torch.equal(found[5:6], norm_rows(x[5:6], weight, EPS, torch.empty_like(x[5:6])))


@DTYPES
def test_the_norm_of_a_sum_keeps_the_sum(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, residual, weight = (torch.randn(shape).to(dtype) for shape in [(3, 100), (3, 100), (100,)])
    total, normed = plain.add_and_norm_rows(x, residual, weight, EPS)
    found = add_and_norm_rows(x, residual, weight, EPS, torch.empty_like(x))
    assert torch.equal(residual, total)
    assert relative_error(found, normed) < TOLERANCE[dtype]
    # What is normed is the sum as it is kept.
    assert dtype == torch.float32 or (found == normed).float().mean() > 0.98


def test_a_row_that_is_too_wide_is_refused() -> None:
    x = torch.zeros(1, WIDEST + 1)
    with pytest.raises(ValueError, match="at most"):
        norm_rows(x, x[0], EPS, torch.empty_like(x))


@DTYPES
@pytest.mark.parametrize("width", [5, 2100])
def test_gate_is_near_float64(dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(0)
    gate_up = torch.randn(2, 2 * width).mul_(4).to(dtype)
    gate_up[0, 0] = -1000.0
    found = gate_rows(gate_up, torch.empty(2, width, dtype=dtype))
    expected = plain.gate_rows(gate_up.double(), inside=torch.float64)
    assert relative_error(found, expected) < TOLERANCE[dtype]
    assert found[0, 0] == 0.0


def check_rotation(heads: int, kv_heads: int, dim: int, dtype: torch.dtype, *, normed: bool) -> None:
    torch.manual_seed(0)
    qkv, positions, pool = rotation_case(heads, kv_heads, dim, dtype)
    tables = rotation_tables(dim, dtype)
    norms = (torch.rand(dim).to(dtype), torch.rand(dim).to(dtype)) if normed else None
    slots = slots_for(4, kv_heads)
    slots[2 * kv_heads : 4 * kv_heads] = -1
    exact, exact_pool = qkv.double(), pool.double()
    plain.rotate_and_store(
        exact, *tables, positions, slots, norms, EPS, exact_pool, heads, inside=torch.float64
    )
    keys_before = qkv[:, heads:].clone()
    rotate_and_store(qkv, *tables, positions, slots, norms, EPS, pool, heads)
    assert torch.equal(qkv[:, heads:], keys_before)
    assert relative_error(qkv[:, :heads], exact[:, :heads]) < TOLERANCE[dtype]
    written = exact_pool.isfinite()
    assert torch.equal(pool.isfinite(), written)
    assert written.sum() == 3 * 2 * kv_heads * dim
    assert relative_error(pool[written], exact_pool[written]) < TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 16), (12, 1, 8)])
def test_rotation_and_pool_are_near_float64(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, normed: bool
) -> None:
    check_rotation(heads, kv_heads, dim, dtype, normed=normed)


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(32, 8, 128), (14, 2, 64), (9, 9, 24), (3, 1, 80)])
def test_rotation_in_the_shapes_of_models(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, normed: bool
) -> None:
    check_rotation(heads, kv_heads, dim, dtype, normed=normed)


@DTYPES
@pytest.mark.parametrize("normed", [False, True])
def test_stands_in_for_torchs(dtype: torch.dtype, normed: bool) -> None:
    torch.manual_seed(0)
    heads, kv_heads, dim = 4, 2, 16
    ours, theirs = TritonElementwise(heads), TorchElementwise(heads, kv_heads, dim)
    qkv, positions, pool = rotation_case(heads, kv_heads, dim, dtype)
    query_norm, key_norm = (torch.rand(dim).to(dtype) if normed else None for _ in range(2))
    tables, slots = rotation_tables(dim, dtype), slots_for(4, kv_heads)

    def rotated(elementwise: Elementwise) -> tuple[torch.Tensor, torch.Tensor]:
        own, own_pool = qkv.clone(), pool.clone()
        rotation = elementwise.rotation(*tables, positions, slots, EPS, grouped=False)
        elementwise.rotate(own, query_norm, key_norm, own_pool, rotation)
        return own[:, :heads], own_pool

    (queries, stored), (expected, expected_pool) = rotated(ours), rotated(theirs)
    assert torch.equal(stored.isfinite(), expected_pool.isfinite())
    assert relative_error(queries, expected) < 2 * TOLERANCE[dtype]
    assert relative_error(stored.nan_to_num(), expected_pool.nan_to_num()) < 2 * TOLERANCE[dtype]
    x, weight = torch.randn(3, 40).to(dtype), torch.rand(40).to(dtype)
    assert relative_error(ours.norm(x, weight, EPS), theirs.norm(x, weight, EPS)) < 2 * TOLERANCE[dtype]
    gate_up = torch.randn(3, 48).to(dtype)
    for fixed in (False, True):
        gated = theirs.gate(gate_up, fixed=fixed)
        assert relative_error(ours.gate(gate_up, fixed=fixed), gated) < 2 * TOLERANCE[dtype]


@DTYPES
def test_joins_a_product_with_the_residual_as_torchs_does(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, residual = torch.randn(3, 16).to(dtype), torch.randn(3, 40).to(dtype)
    product, weight = Linear(torch.randn(40, 16).to(dtype)), torch.rand(40).to(dtype)
    summed, normed = TritonElementwise(4).join(product, x, residual.clone(), weight, EPS, None)
    expected, expected_norm = TorchElementwise(4, 2, 16).join(product, x, residual.clone(), weight, EPS, None)
    assert relative_error(summed, expected) < 2 * TOLERANCE[dtype]
    assert relative_error(normed, expected_norm) < 2 * TOLERANCE[dtype]


def test_results_lie_in_memory_that_is_used_again() -> None:
    ours = TritonElementwise(4)
    x, weight = torch.randn(3, 40), torch.rand(40)
    assert ours.norm(x, weight, EPS).data_ptr() == ours.norm(x[:2], weight, EPS).data_ptr()
    assert ours.gate(x, fixed=True).data_ptr() == ours.gate(x, fixed=False).data_ptr()


def test_a_slot_beyond_two_to_the_31_elements_is_reached(tmp_path: Path) -> None:
    """A pool of 4.3 GB in a file of which only the written pages are there."""
    heads, kv_heads, dim = 1, 1, 64
    qkv, positions, _ = rotation_case(heads, kv_heads, dim, torch.float16, rows=1)
    blocks = 2**31 // (2 * SIZE * dim) + 4
    size = 2 * blocks * SIZE * dim
    pool = torch.from_file(str(tmp_path / "pool"), shared=True, size=size, dtype=torch.float16)
    pool = pool.view(2, blocks, kv_heads, SIZE, dim)
    slots = torch.tensor([2 * blocks * SIZE - 2, 2 * blocks * SIZE - 1])
    rotate_and_store(qkv, *rotation_tables(dim, torch.float16), positions, slots, None, EPS, pool, heads)
    assert torch.equal(pool.view(-1, dim)[-1], qkv[0, 2])
