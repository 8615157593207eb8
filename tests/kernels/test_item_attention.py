from collections.abc import Hashable

import pytest
import torch
from branchwise.kernels.plain import tree_attention as plain
from branchwise.kernels.tables import RowSpan, TreeSpan
from hypothesis import given, settings
from hypothesis import strategies as st
from support.items import (
    Step,
    branches,
    exact,
    item_attention,
    make_step,
    relative_error,
    run_planned,
    run_step,
)
from support.paged import BLOCK, CHUNK, Case, attend, cases, make_attention, random_kv, random_queries

HEADS = st.sampled_from([(4, 4), (6, 2), (3, 1), (10, 2)])


@settings(max_examples=40)
@given(
    case=cases(max_rows=20),
    heads=HEADS,
    programs=st.sampled_from([1, 50]),
    window=st.sampled_from([None, 7, 30]),
    softcap=st.sampled_from([None, 2.0]),
    fixed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_items_equal_dense_attention(
    case: Case,
    heads: tuple[int, int],
    programs: int,
    window: int | None,
    softcap: float | None,
    fixed: bool,
    seed: int,
) -> None:
    step = make_step(case.spans, *heads, 8, BLOCK, torch.float64, seed=seed)
    chunk = CHUNK if fixed else None
    attention = item_attention(
        step, triton=False, windows=(window,), programs=programs, chunk=chunk, softcap=softcap
    )
    found = run_step(step, attention, window)
    assert relative_error(found, exact(step, window, softcap)) < 1e-12


@settings(max_examples=25)
@given(case=cases(), heads=HEADS, window=st.sampled_from([None, 7]), seed=st.integers(0, 99))
def test_items_equal_the_paged_attention_of_a_cpu(
    case: Case, heads: tuple[int, int], window: int | None, seed: int
) -> None:
    torch.manual_seed(seed)
    kv, queries = random_kv(case, heads[1], 8), random_queries(case, heads[0], 8)
    paged = make_attention(case, heads[0], kv, fixed=False, window=window)
    items = item_attention(Step(case.spans, queries, kv), triton=False, windows=(window,))
    expected = attend(case.spans, queries, kv, paged)
    for part, right in zip(attend(case.spans, queries, kv, items), expected, strict=True):
        torch.testing.assert_close(part, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [None, 4, 30])
def test_a_draft_tree_sees_its_prefix_and_its_ancestors(window: int | None) -> None:
    parents = [-1, 0, -1, 1, 1, 2, 5]
    ancestors: list[int] = []
    for node, parent in enumerate(parents):
        ancestors.append((ancestors[parent] if parent >= 0 else 0) | 1 << node)
    spans: list[RowSpan] = [
        TreeSpan(26, 7, tuple(range(1, 10)), tuple(ancestors)),
        RowSpan(22, 1, (1, 2, 3, 4, 5, 10)),
        TreeSpan(20, 64, tuple(range(20, 41)), tuple((1 << 64) - 1 >> 63 - node for node in range(64))),
    ]
    step = make_step(spans, 4, 2, 8, BLOCK, torch.float64)
    found = run_step(step, item_attention(step, triton=False, windows=(window,)), window)
    assert relative_error(found, exact(step, window)) < 1e-12
    chain = RowSpan(spans[2].start, 64, step.spans[2].blocks)
    (as_chain,) = exact(Step([chain], step.queries[2:], step.kv), window)
    torch.testing.assert_close(found[2], as_chain)


def test_layers_of_two_windows_share_a_step() -> None:
    step = make_step(branches([5], [8, 2], 2, BLOCK), 4, 2, 8, BLOCK, torch.float64)
    attention = item_attention(step, triton=False, windows=(None, 9))
    planned = attention.plan(step.spans)
    assert planned.order == list(range(5))
    for window in (None, 9):
        found = run_planned(step, attention, planned, window)
        assert relative_error(found, exact(step, window)) < 1e-12


def test_the_log_sum_exp_is_of_base_2() -> None:
    step = make_step([RowSpan(9, 1, (1, 2, 3))], 2, 1, 8, BLOCK, torch.float64)
    planned = item_attention(step, triton=False).plan(step.spans)
    (query,) = step.queries
    partials = plain.attend_items(query, step.kv, planned.by_window[None].work, scale=0.5, softcap=None)
    keys = step.kv[0, list(step.spans[0].blocks), 0].reshape(-1, 8)[:10]
    scores = query[0] @ keys.T * 0.5
    torch.testing.assert_close(partials.lse[0], scores.exp().sum(-1).log2())


def test_a_step_that_is_moved_on_gives_the_results_of_a_new_plan() -> None:
    step = make_step(branches([4], [6, 3], 1, BLOCK), 4, 2, 8, BLOCK, torch.float64)
    attention = item_attention(step, triton=False, programs=30)
    for behind in range(8, -1, -1):
        moved: list[RowSpan] = [RowSpan(span.start - behind, 1, span.blocks) for span in step.spans]
        now = Step(moved, step.queries, step.kv)
        assert relative_error(run_step(now, attention), exact(now)) < 1e-12


def form(
    spans: list[RowSpan], *, chunk: int | None = None, windows: tuple[int | None, ...] = (None,)
) -> Hashable:
    step = make_step(spans, 8, 2, 8, BLOCK)
    return item_attention(step, triton=False, chunk=chunk, windows=windows).plan(spans).form


def test_the_form_tells_apart_what_is_launched() -> None:
    few = branches([3], [8, 1], 1, BLOCK)
    many = branches([20], [40, 1], 1, BLOCK)
    prefill = RowSpan(0, 9, (200, 201, 202))
    tree = TreeSpan(0, 2, (203,), (1, 3))
    assert form(few) == form(branches([2], [9, 3], 2, BLOCK))
    forms = [form(few), form(many), form([*few, prefill]), form([*few, tree])]
    assert len(set(forms)) == 4
    assert form(few, windows=(30,)) != form(few, windows=(33,))
    assert len({form(spans, chunk=CHUNK) for spans in (few, many, [*few, prefill], [*few, tree])}) == 1


def test_store_puts_rows_where_the_slots_say() -> None:
    step = make_step([RowSpan(5, 1, (1, 2))], 2, 1, 8, BLOCK)
    rows = torch.randn(1, 2, 8)
    slot = 1 * BLOCK + 2
    kv = step.kv.clone()
    item_attention(step, triton=False).store(rows, torch.tensor([slot, 3 * BLOCK + slot]), kv)
    assert torch.equal(kv[:, 1, 0, 2], rows[0])


def test_more_rows_than_the_capacity_are_refused() -> None:
    step = make_step([RowSpan(5, 1, (1, 2))], 2, 1, 8, BLOCK)
    attention = item_attention(step, triton=False)
    with pytest.raises(ValueError, match="9 rows exceed the capacity of 5"):
        run_step(step, attention, padding=8)
