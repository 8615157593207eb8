"""The native steps between products against torch's, row by row."""

import ctypes

import pytest
import torch
from branchwise.kernels.elementwise import TorchElementwise
from branchwise.kernels.interface import Elementwise
from branchwise.kernels.native.elementwise import NativeElementwise
from support.paged import in_groups

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3}


def _pair(
    native: ctypes.CDLL, dtype: torch.dtype, heads: int = 4, kv_heads: int = 2, dim: int = 16
) -> tuple[Elementwise, Elementwise]:
    return NativeElementwise(native, heads, kv_heads, dim, dtype), TorchElementwise(heads, kv_heads, dim)


def _close(found: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected.double(), rtol=tolerance, atol=tolerance)


@DTYPES
@pytest.mark.parametrize("width", [5, 16, 40, 576])
def test_norm(native: ctypes.CDLL, dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(0)
    ours, _ = _pair(native, dtype)
    _, theirs = _pair(native, torch.float32)
    x, weight = torch.randn(7, width).mul_(3).to(dtype), torch.rand(width).to(dtype)
    found = ours.norm(x, weight, 1e-5).clone()
    _close(found, theirs.norm(x.float(), weight.float(), 1e-5).to(dtype))
    assert torch.equal(ours.norm(x[3:4], weight, 1e-5), found[3:4])


@DTYPES
@pytest.mark.parametrize("width", [5, 16, 176])
def test_gate(native: ctypes.CDLL, dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(0)
    ours, theirs = _pair(native, dtype)
    x = torch.randn(6, 2 * width).mul_(4)
    x[0, :4] = torch.tensor([-200.0, 200.0, -88.0, 0.0])
    x = x.to(dtype)
    found = ours.gate(x, fixed=True).clone()
    _close(found, theirs.gate(x.float(), fixed=False).to(dtype))
    assert torch.equal(ours.gate(x[2:3], fixed=True), found[2:3])


@DTYPES
@pytest.mark.parametrize("with_norms", [False, True])
@pytest.mark.parametrize("dim", [8, 16, 48, 64])
def test_rotation_and_store(native: ctypes.CDLL, dtype: torch.dtype, with_norms: bool, dim: int) -> None:
    torch.manual_seed(0)
    rows, padding, heads, kv_heads = 5, 2, 4, 2
    qkv = torch.randn(rows + padding, heads + 2 * kv_heads, dim).to(dtype)
    angle = torch.rand(40, dim // 2) * 6
    cosine = torch.cat((angle.cos(), angle.cos()), -1).to(dtype)
    sine = torch.cat((-angle.sin(), angle.sin()), -1).to(dtype)
    positions = torch.tensor([3, 39, 0, 7, 7, 0, 0])
    slots = torch.randperm(100)[: rows * 2 * kv_heads]
    norms = (torch.rand(dim).to(dtype), torch.rand(dim).to(dtype)) if with_norms else (None, None)
    results = []
    pair = _pair(native, dtype, heads, kv_heads, dim)
    for kind, operator in zip((dtype, torch.float32), pair, strict=True):
        mine, pool = qkv.to(kind, copy=True), torch.zeros(100, dim, dtype=kind)
        query_norm, key_norm = (None if weight is None else weight.to(kind) for weight in norms)
        rotation = operator.rotation(cosine.to(kind), sine.to(kind), positions, slots, 1e-5, grouped=False)
        operator.rotate(mine, query_norm, key_norm, pool, rotation)
        results.append((mine[:rows, :heads].to(dtype), pool.to(dtype)))
    for found, expected in zip(*results, strict=True):
        # A norm that is rounded before the rotation costs one more rounding than torch's in fp32.
        torch.testing.assert_close(found, expected, rtol=0, atol=4 * TOLERANCE[dtype])


@DTYPES
def test_bits_do_not_depend_on_threads(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours, _ = _pair(native, dtype)
    x, weight = torch.randn(300, 1024).to(dtype), torch.rand(1024).to(dtype)

    def results() -> list[torch.Tensor]:
        return [ours.norm(x, weight, 1e-5).clone(), ours.gate(x, fixed=False).clone()]

    alone = results()
    torch.set_num_threads(2)
    try:
        assert all(torch.equal(a, b) for a, b in zip(alone, results(), strict=True))
    finally:
        torch.set_num_threads(1)


@DTYPES
def test_keys_and_values_may_go_to_groups(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    rows, heads, kv_heads, dim, blocks, block = 9, 4, 2, 16, 3, 16
    ours, _ = _pair(native, dtype, heads, kv_heads, dim)
    qkv = torch.randn(rows, heads + 2 * kv_heads, dim).to(dtype)
    cosine, sine = torch.rand(40, dim).to(dtype), torch.rand(40, dim).to(dtype)
    positions, place = torch.arange(rows), torch.randperm(blocks * block)[:rows, None]
    head = torch.arange(2 * kv_heads)
    plane = head // kv_heads * blocks * kv_heads + head % kv_heads
    slots = ((place // block * kv_heads + plane) * block + place % block).flatten()
    pools = []
    for grouped in (False, True):
        mine, pool = qkv.clone(), torch.zeros(2, blocks, kv_heads, block, dim, dtype=dtype)
        rotation = ours.rotation(cosine, sine, positions, slots, 1e-5, grouped=grouped)
        ours.rotate(mine, None, None, pool, rotation)
        pools.append(pool)
    assert torch.equal(pools[1], in_groups(pools[0]))
