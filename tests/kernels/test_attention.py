import pytest
import torch
from branchwise.kernels.attention import HeadShape
from branchwise.kernels.fixed_attention import FixedAttention
from branchwise.kernels.fixed_plan import FixedPlanner
from branchwise.kernels.slabs import Planner
from branchwise.kernels.tables import RowSpan
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.paged import BLOCK, CHUNK, Case, attend, cases, dense, make_attention, random_kv, random_queries

HEADS = st.sampled_from([(4, 4), (6, 2), (3, 1), (10, 2)])
CPU = torch.device("cpu")


@settings(max_examples=40)
@given(
    case=cases(),
    heads=HEADS,
    fixed=st.booleans(),
    window=st.sampled_from([None, 7, 30]),
    seed=st.integers(0, 99),
)
def test_equals_dense_attention(
    case: Case, heads: tuple[int, int], fixed: bool, window: int | None, seed: int
) -> None:
    torch.manual_seed(seed)
    kv, queries = random_kv(case, heads[1], 8), random_queries(case, heads[0], 8)
    found = attend(case.spans, queries, kv, make_attention(case, heads[0], kv, fixed=fixed, window=window))
    for part, expected in zip(found, dense(case, queries, kv, window), strict=True):
        torch.testing.assert_close(part.double(), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=40)
@given(case=cases(), heads=HEADS, seed=st.integers(0, 99), data=st.data())
def test_fixed_items_give_equal_bits_alone_and_together(
    case: Case, heads: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    torch.manual_seed(seed)
    kv, queries = random_kv(case, heads[1], 16), random_queries(case, heads[0], 16)
    attention = make_attention(case, heads[0], kv, fixed=True)
    together = attend(case.spans, queries, kv, attention)
    index = data.draw(st.integers(0, len(case.spans) - 1))
    span = case.spans[index]
    cut = data.draw(st.integers(1, span.rows))
    for first, last in ((0, cut), (cut, span.rows)):
        if first < last:
            alone = [RowSpan(span.start + first, last - first, span.blocks)]
            (found,) = attend(alone, [queries[index][first:last]], kv, attention)
            assert torch.equal(found, together[index][first:last])


def test_shared_chunks_give_the_bits_of_lone_rows() -> None:
    """Forty siblings behind one prefix attend to it in tiles; each alone, it attends by itself."""
    torch.manual_seed(3)
    shared = tuple(range(1, 40))
    spans = [RowSpan(157 + index % 3, 1, (*shared, 40 + index)) for index in range(40)]
    spans.append(RowSpan(0, 150, shared))
    case = Case(spans, 90)
    for heads, kv_heads in ((4, 4), (6, 2), (8, 1)):
        kv, queries = random_kv(case, kv_heads, 32), random_queries(case, heads, 32)
        attention = make_attention(case, heads, kv, fixed=True)
        assert isinstance(attention, FixedAttention)
        assert attention.shares
        together = attend(spans, queries, kv, attention)
        for span, query, found in zip(spans, queries, together, strict=True):
            assert torch.equal(attend([replace(span, rows=1)], [query[:1]], kv, attention)[0], found[:1])


def test_without_sharing_the_results_are_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("branchwise.kernels.fixed_attention._tiles_equal_lone_rows", lambda *_: False)
    torch.manual_seed(4)
    case = Case([RowSpan(60 + i % 4, 1, (*range(1, 16), 20 + i)) for i in range(8)], 40)
    kv, queries = random_kv(case, 2, 16), random_queries(case, 4, 16)
    attention = make_attention(case, 4, kv, fixed=True)
    assert all(slab.shared is None for slab in FixedPlanner(BLOCK, CHUNK, share=False).plan(case.spans).slabs)
    for part, expected in zip(
        attend(case.spans, queries, kv, attention), dense(case, queries, kv), strict=True
    ):
        torch.testing.assert_close(part.double(), expected, rtol=1e-5, atol=1e-5)


def test_long_contexts_and_large_chunks_are_cut_into_bounded_items(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("branchwise.kernels.slabs.ROWS_PER_TILE", 8)
    monkeypatch.setattr("branchwise.kernels.slabs.KEYS_PER_TILE", 16)
    monkeypatch.setattr("branchwise.kernels.attention._GATHERED_VALUES", 4 * 2 * 2 * CHUNK * 8)
    shared = tuple(range(1, 30))
    spans = [RowSpan(116 + i, 1, (*shared, 40 + 2 * i, 41 + 2 * i)) for i in range(7)]
    spans += [RowSpan(0, 110, shared), RowSpan(60, 20, shared[:20])]
    case = Case(spans, 60)
    kv, queries = random_kv(case, 2, 8), random_queries(case, 4, 8)
    expected = dense(case, queries, kv)
    plan = Planner(BLOCK, CHUNK, items_per_slab=4).plan(spans)
    assert len(plan.slabs) > 1
    assert all(tile.rows.stop - tile.rows.start <= 8 and len(tile.blocks) <= 4 for tile in plan.tiles)
    assert len(FixedPlanner(BLOCK, CHUNK, share=True, items_per_slab=4).plan(spans).slabs) > 3
    for fixed in (False, True):
        found = attend(spans, queries, kv, make_attention(case, 4, kv, fixed=fixed))
        for part, right in zip(found, expected, strict=True):
            torch.testing.assert_close(part.double(), right, rtol=1e-5, atol=1e-5)


def test_bfloat16_stays_close() -> None:
    torch.manual_seed(1)
    shared = tuple(range(1, 20))
    spans = [RowSpan(76 + i, 1, (*shared, 30 + 3 * i, 31 + 3 * i, 32 + 3 * i)) for i in range(8)]
    spans.append(RowSpan(20, 12, tuple(range(60, 68))))
    case = Case(spans, 70)
    kv, queries = random_kv(case, 2, 16, torch.bfloat16), random_queries(case, 6, 16)
    found = attend(spans, queries, kv, make_attention(case, 6, kv, fixed=False))
    exact = dense(case, [query.bfloat16().float() for query in queries], kv)
    for part, right in zip(found, exact, strict=True):
        assert (part.double() - right).norm() / right.norm() < 1e-2


@pytest.mark.pins("vllm#43810")
@pytest.mark.parametrize("fixed", [False, True])
def test_a_poisoned_trash_block_reaches_nothing(fixed: bool) -> None:
    torch.manual_seed(2)
    spans = [RowSpan(5, 1, (1, 2)), RowSpan(0, 3, (3,)), RowSpan(17, 6, (4, 5, 6, 7, 8, 9))]
    case = Case(spans, 10)
    kv = random_kv(case, 2, 8)
    assert bool(kv[:, 0].isnan().all())
    for part in attend(spans, random_queries(case, 4, 8), kv, make_attention(case, 4, kv, fixed=fixed)):
        assert bool(part.isfinite().all())


@pytest.mark.parametrize("fixed", [False, True])
def test_scratch_is_reused_between_steps(fixed: bool) -> None:
    case = Case([RowSpan(30, 1, tuple(range(1, 9)))], 10)
    kv, queries = random_kv(case, 2, 8), random_queries(case, 4, 8)
    attention = make_attention(case, 4, kv, fixed=fixed)
    first = attend(case.spans, queries, kv, attention)[0].clone()
    other = Case([RowSpan(9, 2, (3, 4, 5))], 10)
    attend(other.spans, random_queries(other, 4, 8), kv, attention)
    assert torch.equal(attend(case.spans, queries, kv, attention)[0], first)


def test_bfloat16_tiles_equal_lone_rows_here() -> None:
    """Otherwise the deterministic mode would not share in bfloat16 on this machine: slower, and worth
    knowing."""
    shape = HeadShape(9, 3, 64, 16, 4)
    assert FixedAttention(shape, 128, [None], torch.bfloat16, CPU).shares
