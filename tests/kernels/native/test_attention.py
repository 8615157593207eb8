"""The native operator against float64, and row by row against itself."""

import ctypes

import pytest
import torch
from branchwise.kernels.attention import HeadShape
from branchwise.kernels.native.attention import NativeAttention, supports
from branchwise.kernels.tables import RowSpan
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paged import LANES, Case, attend, cases, dense, in_groups, random_kv, random_queries

HEADS = st.sampled_from([(4, 4), (6, 2), (9, 3), (14, 2)])
DIMS = st.sampled_from([16, 32, 48, 64, 96])
BLOCKS = st.sampled_from([16, 32]).flatmap(lambda block: cases(block=block))
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])


def _attention(
    native: ctypes.CDLL, case: Case, heads: int, kv: torch.Tensor, window: int | None = None
) -> NativeAttention:
    shape = HeadShape(heads, kv.shape[2], kv.shape[4], kv.shape[3], case.pool_blocks)
    return NativeAttention(native, shape, [window], kv.dtype)


def _long_case(siblings: int = 40) -> Case:
    """Siblings behind one prefix of several chunks, two of them at other depths, and two prefills."""
    shared = tuple(range(1, 15))
    spans = [RowSpan(225 + index % 3, 1, (*shared, 60 + index)) for index in range(siblings)]
    spans += [RowSpan(101, 1, shared), RowSpan(40, 150, shared), RowSpan(3, 30, tuple(range(110, 113)))]
    return Case(spans, 113, LANES)


@settings(max_examples=80)
@given(case=BLOCKS, heads=HEADS, dim=DIMS, window=st.sampled_from([None, 7, 30]), seed=st.integers(0, 99))
def test_equals_dense_attention(
    native: ctypes.CDLL, case: Case, heads: tuple[int, int], dim: int, window: int | None, seed: int
) -> None:
    torch.manual_seed(seed)
    kv, queries = random_kv(case, heads[1], dim), random_queries(case, heads[0], dim)
    found = attend(case.spans, queries, kv, _attention(native, case, heads[0], kv, window))
    for part, expected in zip(found, dense(case, queries, kv, window), strict=True):
        torch.testing.assert_close(part.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [None, 7, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_contexts_equal_dense_attention(
    native: ctypes.CDLL, dtype: torch.dtype, window: int | None
) -> None:
    torch.manual_seed(1)
    case = _long_case()
    for heads, kv_heads, dim in ((9, 3, 64), (4, 4, 32), (16, 2, 128), (2, 1, 256)):
        kv, queries = random_kv(case, kv_heads, dim, dtype), random_queries(case, heads, dim)
        found = torch.cat(attend(case.spans, queries, kv, _attention(native, case, heads, kv, window)))
        exact = torch.cat(dense(case, [query.to(dtype).float() for query in queries], kv, window))
        error = (found.double() - exact).norm() / exact.norm()
        assert error < (1e-6 if dtype == torch.float32 else 4e-3)


@settings(max_examples=60)
@given(case=BLOCKS, heads=HEADS, dim=DIMS, dtype=DTYPES, seed=st.integers(0, 99), data=st.data())
def test_rows_keep_their_bits_alone_and_together(
    native: ctypes.CDLL,
    case: Case,
    heads: tuple[int, int],
    dim: int,
    dtype: torch.dtype,
    seed: int,
    data: st.DataObject,
) -> None:
    torch.manual_seed(seed)
    kv, queries = random_kv(case, heads[1], dim, dtype), random_queries(case, heads[0], dim)
    attention = _attention(native, case, heads[0], kv)
    together = attend(case.spans, queries, kv, attention)
    index = data.draw(st.integers(0, len(case.spans) - 1))
    span = case.spans[index]
    cut = data.draw(st.integers(1, span.rows))
    for first, last in ((0, cut), (cut, span.rows)):
        if first < last:
            alone = [RowSpan(span.start + first, last - first, span.blocks)]
            (found,) = attend(alone, [queries[index][first:last]], kv, attention)
            assert torch.equal(found, together[index][first:last])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_depend_on_neither_sharing_nor_threads(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    case = _long_case()
    kv, queries = random_kv(case, 3, 64, dtype), random_queries(case, 9, 64)
    attention = _attention(native, case, 9, kv)
    together = attend(case.spans, queries, kv, attention)
    torch.set_num_threads(2)
    try:
        assert torch.equal(torch.cat(attend(case.spans, queries, kv, attention)), torch.cat(together))
    finally:
        torch.set_num_threads(1)
    for span, query, found in zip(case.spans, queries, together, strict=True):
        first = RowSpan(span.start, 1, span.blocks)
        assert torch.equal(attend([first], [query[:1]], kv, attention)[0], found[:1])


@pytest.mark.pins("vllm#43810")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_behind_a_row_reaches_it(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    """Entries beyond a table, blocks of others, and blocks before a window hold NaN."""
    torch.manual_seed(2)
    spans = [RowSpan(19, 1, (1, 2)), RowSpan(0, 4, (3,)), RowSpan(52, 4, (4, 5, 6, 7))]
    case = Case(spans, 12, LANES)
    kv, queries = random_kv(case, 2, 16, dtype), random_queries(case, 4, 16)
    kv[:, 10:] = float("nan")
    kv[:, 4:6] = float("nan")  # the window of 8 of row 52 begins at position 45
    kv[:, 6, :, :13] = float("nan")
    kv[:, 7, :, 8:] = float("nan")
    kv[:, 2, :, 4:] = float("nan")
    kv[:, 3, :, 4:] = float("nan")
    found = attend(case.spans, queries, kv, _attention(native, case, 4, kv, window=8))
    assert all(bool(part.isfinite().all()) for part in found)


def test_a_nan_stays_in_its_own_row(native: ctypes.CDLL) -> None:
    torch.manual_seed(4)
    case = _long_case(9)
    kv, queries = random_kv(case, 2, 32), random_queries(case, 4, 32)
    queries[4][:] = float("nan")
    found = attend(case.spans, queries, kv, _attention(native, case, 4, kv))
    assert [bool(part.isfinite().all()) for part in found] == [index != 4 for index in range(len(found))]
    assert bool(found[4].isnan().all())


def test_scores_of_any_size_stay_finite(native: ctypes.CDLL) -> None:
    torch.manual_seed(5)
    case = _long_case(5)
    kv, queries = random_kv(case, 2, 32), random_queries(case, 4, 32)
    kv[0] *= 1000
    found = attend(case.spans, queries, kv, _attention(native, case, 4, kv))
    for part, expected in zip(found, dense(case, queries, kv), strict=True):
        torch.testing.assert_close(part.double(), expected, rtol=1e-3, atol=2e-3)


def test_queries_and_results_may_lie_apart(native: ctypes.CDLL) -> None:
    """The decoder's queries are part of a wider product."""
    torch.manual_seed(6)
    case = _long_case(3)
    kv = random_kv(case, 2, 16)
    attention = _attention(native, case, 4, kv)
    plan = attention.plan(case.spans).by_window[None]
    wide = torch.randn(plan.step.rows, 9, 16)
    out = torch.zeros(wide.shape[0], 100)
    attention.run(wide[:, :4], kv, plan, out[:, :64])
    packed = torch.zeros(wide.shape[0], 64)
    attention.run(wide[:, :4].contiguous(), kv, plan, packed)
    assert torch.equal(out[:, :64], packed)
    assert not bool(out[:, 64:].any())


def test_unsuited_shapes_are_left_to_torch() -> None:
    cpu = torch.device("cpu")
    assert supports(HeadShape(9, 3, 64, LANES, 4), torch.bfloat16, cpu)
    assert not supports(HeadShape(4, 4, 40, LANES, 4), torch.float32, cpu)
    assert not supports(HeadShape(4, 4, 512, LANES, 4), torch.float32, cpu)
    assert not supports(HeadShape(4, 4, 64, LANES, 4), torch.float16, cpu)
    assert not supports(HeadShape(4, 4, 64, LANES, 4, softcap=50.0), torch.float32, cpu)
    assert not supports(HeadShape(4, 4, 64, LANES, 4), torch.float32, torch.device("meta"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_rows_lie_in_groups(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    torch.manual_seed(8)
    blocks, kv_heads, block, dim = 5, 2, 32, 48
    shape = HeadShape(4, kv_heads, dim, block, blocks)
    rows = torch.randn(40, 2 * kv_heads, dim).to(dtype)
    place = torch.randperm(blocks * block)[:40]
    head = torch.arange(2 * kv_heads)
    plane = head // kv_heads * blocks * kv_heads + head % kv_heads
    slots = (place[:, None] // block * kv_heads + plane) * block + place[:, None] % block
    plain = torch.zeros(2, blocks, kv_heads, block, dim, dtype=dtype)
    plain.view(-1, dim)[slots.flatten()] = rows.view(-1, dim)
    found = torch.zeros_like(plain)
    NativeAttention(native, shape, [None], dtype).store(rows, slots.flatten(), found)
    assert torch.equal(found, in_groups(plain))


def test_supports_whole_groups_only() -> None:
    assert not supports(HeadShape(4, 4, 64, 24, 4), torch.float32, torch.device("cpu"))
