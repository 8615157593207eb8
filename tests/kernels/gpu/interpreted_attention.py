"""The attention kernels in Triton's interpreter against float64, at small shapes."""

import numpy as np
import pytest
import torch
from branchwise.kernels.item_attention import ItemAttention
from branchwise.kernels.plain import tree_attention as plain
from branchwise.kernels.tables import RowSpan, TreeSpan
from branchwise.kernels.work import KEYS, NARROW, WIDE
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

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 6e-3}


def check(
    step: Step,
    *,
    windows: tuple[int | None, ...] = (None,),
    programs: int = 8,
    softcap: float | None = None,
    tma: bool = False,
) -> ItemAttention:
    """Run `step` for each window, on poisoned partial buffers."""
    attention = item_attention(
        step, triton=True, windows=windows, programs=programs, softcap=softcap, tma=tma
    )
    poison(attention)
    planned = attention.plan(step.spans)
    for window in windows:
        found = run_planned(step, attention, planned, window)
        assert relative_error(found, exact(step, window, softcap)) < TOLERANCE[step.kv.dtype]
    return attention


def poison(attention: ItemAttention) -> None:
    attention._partial.fill_(float("nan"))
    attention._partial_lse.fill_(float("nan"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_tree_of_three_levels(dtype: torch.dtype) -> None:
    spans = branches([2, 3], [3, 2, 2], 3, 16)
    check(make_step(spans, 4, 2, 32, 16, dtype), programs=40)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(4, 4, 16), (6, 2, 24), (8, 1, 16), (7, 1, 32), (18, 1, 16)],
    ids=["MHA", "group of 3 and 24 values", "MQA", "group of 7", "group of 18"],
)
def test_heads_of_any_number_and_size(heads: int, kv_heads: int, dim: int) -> None:
    check(make_step(branches([3], [4, 1], 6, 16), heads, kv_heads, dim, 16))


@pytest.mark.parametrize("page", [32, 64, 128])
def test_blocks_of_any_size_partly_full(page: int) -> None:
    check(make_step(branches([2], [2, 1], page - 1, page), 4, 2, 16, page, torch.bfloat16))


def test_two_prompts_and_nodes_of_one_token() -> None:
    """The first token of a block is a row's own, and lone tokens lie behind a shared prefix."""
    check(make_step(branches([3], [2, 1], 1, 16, roots=2), 4, 2, 16, 16, torch.bfloat16))
    check(make_step([RowSpan(0, 1, (1,)), RowSpan(0, 1, (2,))], 4, 2, 16, 16))


def test_many_rows_run_in_wide_items() -> None:
    step = make_step(branches([18], [4, 1], 2, 16), 4, 1, 16, 16, torch.bfloat16)
    attention = check(step)
    assert attention.plan(step.spans).by_window[None].work.items[WIDE] == 1


def test_prefill_attends_in_tiles_beside_decoding_rows() -> None:
    prompt = tuple(range(1, 6))
    spans = [RowSpan(70, 1, prompt), RowSpan(36, 30, (*prompt[:2], 6, 7, 8)), RowSpan(0, 5, (9,))]
    check(make_step(spans, 4, 2, 16, 16, torch.bfloat16))


def test_windows_and_full_attention_of_one_step() -> None:
    spans = [RowSpan(55, 1, (1, 2, 3, 4)), RowSpan(40, 20, (1, 2, 5, 6)), RowSpan(3, 1, (7,))]
    check(make_step(spans, 4, 2, 16, 16), windows=(None, 21))


def test_scores_are_capped() -> None:
    step = make_step(branches([2], [2, 1], 5, 16), 4, 2, 16, 16)
    step.queries = [query * 40 for query in step.queries]
    check(step, softcap=3.0)


def test_a_draft_tree_sees_its_prefix_and_its_ancestors() -> None:
    parents = [-1, 0, -1, 1, 1, 2, 5]
    ancestors: list[int] = []
    for node, parent in enumerate(parents):
        ancestors.append((ancestors[parent] if parent >= 0 else 0) | 1 << node)
    chain = [(1 << node + 1) - 1 for node in range(64)]
    spans: list[RowSpan] = [
        TreeSpan(29, 7, (1, 2, 3), tuple(ancestors)),
        RowSpan(40, 1, (1, 4, 5)),
        TreeSpan(5, 64, (6, 7, 8, 9, 10), tuple(chain)),
    ]
    step = make_step(spans, 4, 2, 16, 16)
    check(step, windows=(None, 4))


def test_keys_by_descriptors() -> None:
    step = make_step(branches([3], [2, 1], 5, 32), 4, 2, 32, 32, torch.bfloat16)
    step.kv[:, 0] = 0
    check(step, tma=True)


@pytest.mark.parametrize("tma", [False, True], ids=["pointers", "descriptors"])
def test_what_an_earlier_owner_left_behind_the_last_key_is_loaded_only_where_it_says_so(tma: bool) -> None:
    """Blocks are cleared when they are started, unless the attention masks its loads."""
    step = make_step(branches([3], [2, 1], 5, 32), 4, 2, 32, 32, torch.bfloat16)
    step.kv[:, 0] = 0
    attention = item_attention(step, triton=True, tma=tma)
    expected = run_step(step, attention)
    for span in step.spans:
        step.kv[:, span.blocks[-1], :, span.start % 32 + 1 :] = float("nan")
    found = run_step(step, attention)
    equal = all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert equal == attention.masks_loads == (not tma)


def test_an_empty_item_and_rows_without_slots_leave_zeros() -> None:
    step = make_step([RowSpan(20, 1, (1, 2)), RowSpan(9, 1, (3,))], 4, 2, 16, 16)
    attention = item_attention(step, triton=True)
    poison(attention)
    planned = attention.plan(step.spans)
    arrays = planned.by_window[None].arrays
    assert arrays["items"][NARROW, KEYS, :2].tolist() == [21, 10]
    arrays["items"][NARROW, KEYS, 1] = 0
    found = run_planned(step, attention, planned)
    assert relative_error(found[:1], exact(step)[:1]) < 1e-5
    assert bool((found[1] == 0).all())
    assert bool((attention._partial_lse[1] == float("-inf")).all())


def test_slots_hold_the_partials_and_the_log_sum_exps_of_the_plain_items() -> None:
    step = make_step([*branches([3], [4, 1], 3, 16), RowSpan(3, 9, (90,))], 4, 2, 16, 16)
    attention = item_attention(step, triton=True, programs=16)
    planned = attention.plan(step.spans)
    run_planned(step, attention, planned)
    work = planned.by_window[None].work
    right = plain.attend_items(torch.cat(step.queries), step.kv, work, scale=0.25, softcap=None)
    torch.testing.assert_close(attention._partial[: work.slots], right.out, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attention._partial_lse[: work.slots], right.lse, rtol=1e-4, atol=1e-5)


def test_a_plan_that_is_moved_on_reaches_the_kernel() -> None:
    step = make_step(branches([2], [2, 2], 1, 16), 2, 1, 16, 16)
    attention = item_attention(step, triton=True)
    for behind in (2, 1, 0):
        moved: list[RowSpan] = [RowSpan(span.start - behind, 1, span.blocks) for span in step.spans]
        now = Step(moved, step.queries, step.kv)
        assert relative_error(run_step(now, attention), exact(now)) < 1e-5
    assert attention._planners[None].updates == 2


def test_a_row_of_more_slots_than_are_merged_at_once() -> None:
    step = make_step([RowSpan(327, 1, tuple(range(1, 22)))], 8, 2, 16, 16)
    attention = item_attention(step, triton=True, chunk=16)
    planned = attention.plan(step.spans)
    assert planned.by_window[None].work.slots == 21
    assert relative_error(run_planned(step, attention, planned), exact(step)) < 1e-5


def deterministic(step: Step) -> list[torch.Tensor]:
    return run_step(step, item_attention(step, triton=True, chunk=32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chunks_give_the_same_bits_alone_unshared_and_shared(dtype: torch.dtype) -> None:
    spans = branches([2, 2], [4, 2, 1], 7, 16)
    step = make_step(spans, 4, 2, 16, 16, dtype)
    shared = deterministic(step)
    assert relative_error(shared, exact(step)) < TOLERANCE[dtype]
    copies = unshared(step)
    assert [span.blocks[0] for span in copies.spans] != [step.spans[0].blocks[0]] * len(spans)
    for row, (apart, together) in enumerate(zip(deterministic(copies), shared, strict=True)):
        alone = Step(step.spans[row : row + 1], step.queries[row : row + 1], step.kv)
        assert torch.equal(deterministic(alone)[0], together)
        assert torch.equal(apart, together)


def unshared(step: Step) -> Step:
    """The step with a copy of its blocks for every row."""
    blocks = [list(span.blocks) for span in step.spans]
    kv = torch.cat([step.kv[:, :1], *(step.kv[:, part] for part in blocks)], 1)
    firsts = [1 + sum(len(part) for part in blocks[:index]) for index in range(len(blocks))]
    spans: list[RowSpan] = [
        RowSpan(span.start, 1, tuple(range(first, first + len(part))))
        for span, first, part in zip(step.spans, firsts, blocks, strict=True)
    ]
    return Step(spans, step.queries, kv)


def test_a_prefill_gives_the_bits_of_its_rows_alone() -> None:
    table = tuple(range(1, 6))
    step = make_step([RowSpan(30, 12, table), RowSpan(60, 1, (*table[:3], 6))], 4, 2, 16, 16)
    together = deterministic(step)
    (span, _), (query, _) = step.spans, step.queries
    for row in (0, 1, 5, 11):
        alone = Step([RowSpan(30 + row, 1, span.blocks)], [query[row : row + 1]], step.kv)
        assert torch.equal(deterministic(alone)[0], together[0][row : row + 1])


def test_blocks_behind_two_to_the_31_values_are_reached() -> None:
    """A region of virtual memory, of which only the blocks that are read are touched; the tensor that is
    handed on owns its first block alone, for the interpreter copies what a tensor owns."""
    dim, page = 64, 128
    far = (1 << 31) // (page * dim) + 1
    region = np.zeros((far + 1) * page * dim, np.float16)
    step = make_step([RowSpan(130, 1, (1, 2))], 2, 1, dim, page, torch.float16)
    blocks = region.reshape(-1, page, dim)
    blocks[far], blocks[1] = step.kv[0, list(step.spans[0].blocks), 0].numpy()
    step.kv[1] = step.kv[0]
    pool = torch.from_numpy(region[: page * dim]).view(1, 1, 1, page, dim).expand(2, -1, -1, -1, -1)
    reached = Step([RowSpan(130, 1, (far, 1))], step.queries, pool)
    attention = item_attention(step, triton=True)
    assert relative_error(run_step(reached, attention), exact(step)) < TOLERANCE[torch.float16]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("counts", "blocks", "last", "page", "roots"),
    [
        ([20], [4, 1], 1, 16, 1),
        ([4, 3], [2, 1, 1], 9, 32, 1),
        ([1, 5], [1, 2, 1], 60, 64, 2),
        ([3], [1, 1], 100, 128, 1),
    ],
    ids=["many leaves", "three levels", "two roots", "large blocks"],
)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(8, 2, 64), (4, 4, 32), (5, 1, 80)], ids=["GQA", "MHA", "MQA"]
)
def test_trees_at_length(
    dtype: torch.dtype,
    counts: list[int],
    blocks: list[int],
    last: int,
    page: int,
    roots: int,
    heads: int,
    kv_heads: int,
    dim: int,
) -> None:
    spans = branches(counts, blocks, last, page, roots=roots)
    check(make_step(spans, heads, kv_heads, dim, page, dtype), programs=32)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_prefills_trees_and_rows_at_length(window: int | None, softcap: float | None) -> None:
    prompt = tuple(range(1, 10))
    chain = tuple((1 << node + 1) - 1 if node < 5 else 1 | 1 << node for node in range(20))
    spans: list[RowSpan] = [
        RowSpan(143, 1, prompt),
        RowSpan(70, 50, (*prompt[:4], 10, 11, 12, 13)),
        TreeSpan(66, 20, (*prompt[:4], 14, 15), chain),
        RowSpan(0, 33, (20, 21, 22)),
        *(RowSpan(130 + index, 1, (*prompt[:8], 30 + index)) for index in range(9)),
    ]
    for dtype in (torch.float32, torch.bfloat16):
        check(make_step(spans, 6, 2, 32, 16, dtype), windows=(window,), softcap=softcap)


@pytest.mark.slow
def test_chunks_give_the_same_bits_at_length() -> None:
    spans = branches([3, 3], [4, 3, 2], 3, 32)
    step = make_step(spans, 8, 2, 64, 32, torch.bfloat16)
    shared = run_step(step, item_attention(step, triton=True, chunk=64))
    for row, together in enumerate(shared):
        alone = Step(step.spans[row : row + 1], step.queries[row : row + 1], step.kv)
        assert torch.equal(run_step(alone, item_attention(alone, triton=True, chunk=64))[0], together)
