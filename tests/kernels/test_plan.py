import pytest
import torch
from branchwise.kernels.plan import AttentionPlan, Planner, RowSpan
from hypothesis import given
from support.paged import BLOCK, CHUNK, Case, cases


def _tile_reads(plan: AttentionPlan) -> list[tuple[slice, list[int]]]:
    return [(tile.rows, tile.blocks.tolist()) for tile in plan.tiles]


def test_siblings_read_their_prefix_once() -> None:
    shared = tuple(range(1, 17))
    spans = [RowSpan(64, 1, (*shared, 20 + index)) for index in range(5)]
    plan = Planner(BLOCK, CHUNK, fixed=False).plan(spans)
    assert _tile_reads(plan) == [(slice(0, 5), list(shared))]
    assert sum(len(slab.blocks) for slab in plan.slabs) == 5


def test_a_tree_is_read_level_by_level() -> None:
    root, left, right = tuple(range(1, 17)), tuple(range(20, 36)), tuple(range(40, 56))
    spans = [RowSpan(128, 1, (*root, *branch, 60 + i)) for i, branch in enumerate((left, right, left, right))]
    plan = Planner(BLOCK, CHUNK, fixed=False).plan(spans)
    reads = _tile_reads(plan)
    assert plan.order == [0, 2, 1, 3]
    assert (slice(0, 4), list(root)) in reads
    assert (slice(0, 2), list(left)) in reads
    assert (slice(2, 4), list(right)) in reads


def test_short_runs_are_not_worth_a_product() -> None:
    spans = [RowSpan(4, 1, (1, 2)), RowSpan(4, 1, (1, 3))]
    plan = Planner(BLOCK, CHUNK, fixed=False).plan(spans)
    assert plan.tiles == []


def test_a_plan_is_kept_while_the_tables_are_the_same_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = Planner._group
    monkeypatch.setattr(Planner, "_group", lambda self, spans: built.append(1) or original(self, spans))
    planner = Planner(BLOCK, CHUNK, fixed=False)
    tables = [(*range(1, 17), 20), (*range(1, 17), 21)]
    for position in (64, 65, 66):
        planner.plan([RowSpan(position, 1, table) for table in tables])
    assert len(built) == 1
    planner.plan([RowSpan(66, 1, tables[0]), RowSpan(66, 1, (*tables[1][:-1], 30))])
    assert len(built) == 2


def test_a_window_that_is_reached_ends_sharing() -> None:
    shared = tuple(range(1, 17))
    planner = Planner(BLOCK, CHUNK, fixed=False, window=66)
    spans = [(*shared, 20), (*shared, 21)]
    assert planner.plan([RowSpan(64, 1, table) for table in spans]).tiles
    assert not planner.plan([RowSpan(66, 1, table) for table in spans]).tiles


@given(case=cases())
def test_every_key_is_seen_once(case: Case) -> None:
    for fixed in (False, True):
        plan = Planner(BLOCK, CHUNK, fixed=fixed).plan(case.spans)
        spans = [case.spans[index] for index in plan.order]
        seen: list[list[int]] = [[] for _ in range(plan.rows)]
        for slab in plan.slabs:
            keys = slab.blocks[:, :, None] * BLOCK + torch.arange(BLOCK)
            for row, places, mask in zip(slab.item_rows.tolist(), keys.flatten(1), slab.mask, strict=True):
                seen[slab.rows.start + row] += places[mask == 0].tolist()
        for tile in plan.tiles:
            places = (tile.blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
            for index, row in enumerate(range(tile.rows.start, tile.rows.stop)):
                seen[row] += places.tolist() if tile.mask is None else places[tile.mask[index] == 0].tolist()
        row = 0
        for span in spans:
            for position in range(span.start, span.start + span.rows):
                wanted = [span.blocks[p // BLOCK] * BLOCK + p % BLOCK for p in range(position + 1)]
                assert sorted(seen[row]) == sorted(wanted)
                row += 1


def test_a_chunk_that_cuts_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="key_chunk 10 is not a multiple of the block size 4"):
        Planner(4, 10, fixed=True)
