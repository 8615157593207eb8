from collections.abc import Callable

import numpy as np
import pytest
from branchwise.kernels.plan import WorkPlanner, capacity_for
from branchwise.kernels.tables import RowSpan, TreeSpan
from branchwise.kernels.work import (
    FIRST_KEY,
    FIRST_SLOT,
    KEYS,
    NARROW,
    SLOTS,
    WIDE,
    Capacity,
    WorkPlan,
    memory_words,
    tiling,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.paged import BLOCK, CHUNK, Case, cases
from support.work_plans import drafted, expected, moved, seen, siblings

GROUPS = st.sampled_from([1, 2, 4, 7, 16])
PROGRAMS = st.sampled_from([1, 8, 64, 1000])
WINDOWS = st.sampled_from([None, 5, 12, 40])


def planner(
    group: int = 4,
    *,
    programs: int = 1,
    window: int | None = None,
    chunk: int | None = None,
    block: int = BLOCK,
    capacity: Capacity | None = None,
) -> WorkPlanner:
    """A planner of two KV heads with room for what the tests plan."""
    capacity = capacity or Capacity(rows=400, slots=16384, items=4096, pages=8192)
    return WorkPlanner(block, group, 2, capacity=capacity, programs=programs, window=window, chunk=chunk)


@given(
    case=cases(max_rows=40),
    group=GROUPS,
    programs=PROGRAMS,
    window=WINDOWS,
    fixed=st.booleans(),
    data=st.data(),
)
def test_every_row_sees_each_of_its_keys_once_and_in_order(
    case: Case, group: int, programs: int, window: int | None, fixed: bool, data: st.DataObject
) -> None:
    spans = data.draw(drafted(case))
    chunk = CHUNK if fixed else None
    plan = planner(group, programs=programs, window=window, chunk=chunk).plan(spans)
    assert plan.rows == sum(span.rows for span in spans)
    assert seen(plan) == expected(spans, window)


@given(
    case=cases(max_rows=1), steps=st.lists(st.booleans(), max_size=30), window=WINDOWS, fixed=st.booleans()
)
def test_a_plan_moved_on_sees_what_a_new_one_sees(
    case: Case, steps: list[bool], window: int | None, fixed: bool
) -> None:
    chunk = CHUNK if fixed else None
    moving = planner(programs=16, window=window, chunk=chunk)
    spans = case.spans
    moving.plan(spans)
    following = case.pool_blocks
    for grow in steps:
        spans = moved(spans, grow, following)
        following += len(spans)
        plan = moving.plan(spans)
        assert seen(plan) == expected(spans, window)
        fresh = planner(programs=16, window=window, chunk=chunk).plan(spans)
        assert (plan.limited, plan.windowed, plan.treed) == (fresh.limited, fresh.windowed, fresh.treed)


def test_a_step_of_the_same_rows_is_an_update() -> None:
    one = planner(block=16)
    spans = siblings(8, 10, 3, block=16)
    spans = [replace(span, start=span.start - 20) for span in spans]
    one.plan(spans)
    for step in range(1, 21):
        one.plan([replace(span, start=span.start + step) for span in spans])
    assert (one.rebuilds, one.updates) == (1, 20)
    longer = [RowSpan(span.start + 21, 1, (*span.blocks, 100 + index)) for index, span in enumerate(spans)]
    one.plan(longer)
    assert (one.rebuilds, one.updates) == (1, 21)


@pytest.mark.parametrize(
    "change",
    [
        lambda spans: spans[:-1],
        lambda spans: [*spans, spans[0]],
        lambda spans: [spans[1], spans[0], *spans[2:]],
        lambda spans: [replace(spans[0], blocks=(*spans[0].blocks[:-1], 99)), *spans[1:]],
        lambda spans: [replace(spans[0], start=spans[0].start + 1), *spans[1:]],
        lambda spans: [replace(spans[0], blocks=(*spans[0].blocks, 98, 99)), *spans[1:]],
        lambda spans: [replace(spans[0], rows=2, blocks=(*spans[0].blocks, 99)), *spans[1:]],
        lambda spans: [TreeSpan(spans[0].start, 1, spans[0].blocks, (1,)), *spans[1:]],
    ],
    ids=["pruned", "forked", "reordered", "copied block", "skipped", "two blocks", "more rows", "draft"],
)
def test_any_other_step_is_planned_anew(change: Callable[[list[RowSpan]], list[RowSpan]]) -> None:
    one = planner()
    spans = [replace(span, start=span.start - 3) for span in siblings(4, 10, 3)]
    one.plan(spans)
    changed = change([replace(span, start=span.start + 1) for span in spans])
    plan = one.plan(changed)
    assert (one.rebuilds, one.updates) == (2, 0)
    assert seen(plan) == expected(changed, None)


def test_rows_that_have_outgrown_their_room_are_planned_anew() -> None:
    """The room of a short row ends before a long one's, and another row's blocks lie behind it."""
    one = planner()
    spans = [RowSpan(0, 1, (1,)), RowSpan(1999, 1, tuple(range(2, 502))), RowSpan(3, 1, (502,))]
    one.plan(spans)
    for step in range(600):
        spans = moved(spans, False, 600 + 3 * step)
        plan = one.plan(spans)
        if step % 50 == 0:
            assert seen(plan) == expected(spans, None)
    assert 2 <= one.rebuilds <= 4


def test_a_row_behind_a_draft_of_one_node_is_planned_anew() -> None:
    one = planner()
    table = (1, 2, 3)
    one.plan([RowSpan(5, 1, table)])
    one.plan([TreeSpan(6, 1, table, (1,))])
    spans = [RowSpan(7, 1, table)]
    plan = one.plan(spans)
    assert not plan.treed
    assert seen(plan) == expected(spans, None)


@pytest.mark.parametrize("chunk", [None, CHUNK])
def test_a_window_that_moves_on_leaves_what_is_before_it(chunk: int | None) -> None:
    window, most = 40, 64 + 2 * BLOCK
    one = planner(window=window, chunk=chunk)
    spans = [RowSpan(10, 1, (1, 2, 3)), RowSpan(0, 1, (4,))]
    for step in range(300):
        spans = moved(spans, False, 10 + 2 * step)
        plan = one.plan(spans)
        if chunk is None:
            assert plan.keys_read() <= 2 * (window + most)
        else:
            fresh = planner(window=window, chunk=chunk).plan(spans)
            assert plan.keys_read() == fresh.keys_read()
            assert plan.items == fresh.items
    assert one.updates > one.rebuilds


def test_siblings_read_their_prefix_once_and_move_the_bytes_of_the_formula() -> None:
    heads, kv_heads, dim, rows = 8, 2, 64, 16
    plan = planner().plan(siblings(rows, 32, 4))
    unique = (32 + rows * 4) * BLOCK
    assert plan.keys_read() == unique
    assert plan.items == (rows, 1)
    assert plan.slots == 2 * rows
    kv = 2 * kv_heads * dim * 2 * unique
    partials = plan.slots * heads * (dim + 1) * 8
    assert plan.bytes_moved(kv_heads, dim, 2) == kv + partials + rows * heads * dim * 4


def test_a_tree_is_read_once_level_by_level() -> None:
    root, left, right = tuple(range(1, 17)), tuple(range(20, 36)), tuple(range(40, 56))
    spans = [RowSpan(128, 1, (*root, *branch, 60 + i)) for i, branch in enumerate((left, right, left, right))]
    plan = planner().plan(spans)
    assert plan.keys_read() == 3 * 16 * BLOCK + 4
    assert plan.slots == 3 * 4
    assert seen(plan) == expected(spans, None)


def test_a_chain_of_forks_that_one_row_set_took_is_one_node() -> None:
    """Rows that were forked at several depths, of which only those of the last fork remain."""
    plan = planner().plan(siblings(5, 60, 2))
    assert plan.slots == 2 * 5


@pytest.mark.parametrize(("shared", "together"), [(4, False), (5, True)])
def test_a_node_is_shared_where_it_saves_more_than_its_partials_cost(shared: int, together: bool) -> None:
    """Two rows of groups of 4: 2 * 4 * 2 / (2 - 1) = 16 keys are the break-even."""
    plan = planner(4).plan(siblings(2, shared, 1))
    assert plan.slots == (4 if together else 2)
    assert plan.keys_read() == shared * BLOCK * (1 if together else 2) + 2 * BLOCK


def test_many_rows_are_wide_items_and_few_are_narrow() -> None:
    assert tiling(4) == (4, 4, 4, 16)
    assert tiling(7) == (7, 8, 2, 8)
    assert tiling(1) == (1, 1, 16, 64)
    assert tiling(64) == (64, 64, 1, 0)
    plan = planner(4).plan(siblings(20, 40, 1))
    assert plan.items == (20 + 1, 1)
    assert plan.arrays.items[WIDE, SLOTS, 0] == 16
    assert 4 in plan.arrays.items[NARROW, SLOTS, : plan.items[NARROW]]


def test_the_deterministic_mode_has_no_wide_items() -> None:
    plan = planner(4, chunk=CHUNK).plan([*siblings(20, 40, 1), RowSpan(0, 90, tuple(range(100, 130)))])
    assert plan.items[WIDE] == 0


def test_long_runs_are_cut_for_a_wide_device_in_falling_order() -> None:
    spans = siblings(2, 0, 256)
    whole = planner(programs=1).plan(spans)
    assert whole.items == (2, 0)
    cut = planner(programs=64).plan(spans)
    keys = cut.arrays.items[NARROW, KEYS, : cut.items[NARROW]]
    assert cut.items[NARROW] > 8
    assert keys.max() <= 256
    assert (np.diff(keys) <= 0).all()
    assert seen(cut) == expected(spans, None)


@given(rows=st.integers(1, 64), keys=st.integers(1, 600), programs=PROGRAMS, group=GROUPS)
def test_cutting_adds_few_partials(rows: int, keys: int, programs: int, group: int) -> None:
    spans = siblings(rows, 0, keys // BLOCK + 1)
    plan = planner(group, programs=programs, capacity=Capacity(rows=64, slots=9999, items=9999, pages=20000))
    found = plan.plan(spans)
    few = 0.1 * (found.keys_read() + rows * BLOCK) / (2 * group)
    assert found.slots <= max(few, rows + programs / 2 / 4)


def test_a_shared_prefix_is_cut_though_its_partials_are_many() -> None:
    """64 rows behind a long prefix with few keys of their own: uncut, its four items would hold all up."""
    plan = planner(programs=2 * 48).plan(siblings(64, 512, 4))
    prefix = plan.arrays.items[WIDE, :, : plan.items[WIDE]]
    assert plan.items[WIDE] >= 8
    assert prefix[KEYS].max() * 48 <= 8 * plan.keys_read()


@settings(max_examples=40)
@given(case=cases(max_rows=20), window=st.sampled_from([None, 12]))
def test_deterministic_items_are_the_same_alone_and_together(case: Case, window: int | None) -> None:
    """A row's items: the keys from which on they read, and how many its own masks leave of them."""

    def cuts(plan: WorkPlan, row: int) -> list[tuple[int, int]]:
        arrays = plan.arrays
        items = arrays.items[NARROW, :, : plan.items[NARROW]].T.tolist()
        first_key = {
            slot: (item[FIRST_KEY], min(item[KEYS], arrays.limit[slot] - item[FIRST_KEY]))
            for item in items
            for slot in range(item[FIRST_SLOT], item[FIRST_SLOT] + item[SLOTS])
        }
        return [first_key[slot] for slot in arrays.row_slots[arrays.row_ptr[row] : arrays.row_ptr[row + 1]]]

    together = planner(chunk=CHUNK, window=window).plan(case.spans)
    row = 0
    for span in case.spans:
        for offset in range(span.rows):
            alone = planner(chunk=CHUNK, window=window).plan([RowSpan(span.start + offset, 1, span.blocks)])
            assert cuts(together, row) == cuts(alone, 0)
            assert all(first % CHUNK == 0 for first, _ in cuts(together, row))
            assert together.flags == alone.flags
            row += 1


def test_a_step_beyond_the_capacity_is_cut_less_or_refused() -> None:
    spans = siblings(8, 0, 100)
    cut = planner(programs=400).plan(spans)
    assert cut.slots > 20
    fewer = planner(programs=400, capacity=Capacity(rows=8, slots=20, items=20, pages=2000)).plan(spans)
    assert 8 <= fewer.slots <= 20
    assert seen(fewer) == expected(spans, None)
    shared = siblings(8, 50, 2)
    apart = planner(capacity=Capacity(rows=8, slots=8, items=20, pages=2000)).plan(shared)
    assert apart.slots == 8
    assert seen(apart) == expected(shared, None)
    for what, small in {
        "8 rows": Capacity(rows=7, slots=20, items=20, pages=2000),
        "8 slots": Capacity(rows=8, slots=7, items=20, pages=2000),
        "8 items": Capacity(rows=8, slots=20, items=7, pages=2000),
        "1312 pages": Capacity(rows=8, slots=20, items=20, pages=800),
    }.items():
        with pytest.raises(ValueError, match=f"a step needs {what}, and the plan's memory holds"):
            planner(capacity=small).plan(spans)


def test_a_refused_step_leaves_the_planner_usable() -> None:
    small = planner(capacity=Capacity(rows=4, slots=8, items=8, pages=2000))
    spans = siblings(4, 0, 2)
    small.plan(spans)
    with pytest.raises(ValueError, match="5 rows"):
        small.plan(siblings(5, 0, 2))
    assert seen(small.plan(spans)) == expected(spans, None)


@given(case=cases(max_rows=12), fixed=st.booleans())
def test_the_capacity_for_steps_holds_them(case: Case, fixed: bool) -> None:
    chunk = CHUNK if fixed else None
    capacity = capacity_for(
        sum(span.rows for span in case.spans),
        len(case.spans),
        max(len(span.blocks) for span in case.spans),
        BLOCK,
        chunk=chunk,
        slots_per_row=1,
    )
    plan = planner(programs=100, chunk=chunk, capacity=capacity).plan(case.spans)
    assert seen(plan) == expected(case.spans, None)


def test_plans_lie_in_the_memory_that_was_given() -> None:
    capacity = Capacity(rows=8, slots=64, items=64, pages=800)
    memory = np.zeros(memory_words(capacity), np.int32)
    plan = WorkPlanner(BLOCK, 4, 2, capacity=capacity, memory=memory).plan(siblings(4, 20, 2))
    arrays = plan.arrays
    assert all(np.shares_memory(part, memory) for part in (arrays.items, arrays.bits, arrays.pages))
    assert arrays.used_words(plan.pages) <= len(memory)
    with pytest.raises(ValueError, match="int32"):
        WorkPlanner(BLOCK, 4, 2, capacity=capacity, memory=memory[:-1])


def test_a_chunk_that_cuts_blocks_and_a_tree_without_masks_are_refused() -> None:
    with pytest.raises(ValueError, match="chunk 10 is not a multiple of the block size 4"):
        planner(chunk=10)
    with pytest.raises(ValueError, match="a draft tree of 3 rows has 2 masks"):
        planner().plan([TreeSpan(0, 3, (1,), (1, 3))])
