import pytest
import torch
from branchwise.kernels.fixed_plan import TILE_ROWS, FixedPlanner
from branchwise.kernels.slabs import AttentionPlan, Planner
from branchwise.kernels.tables import RowSpan
from hypothesis import given
from hypothesis import strategies as st
from support.paged import BLOCK, CHUNK, Case, cases


def _tile_reads(plan: AttentionPlan) -> list[tuple[slice, list[int]]]:
    return [(tile.rows, tile.blocks.tolist()) for tile in plan.tiles]


def test_siblings_read_their_prefix_once() -> None:
    shared = tuple(range(1, 17))
    spans = [RowSpan(64, 1, (*shared, 20 + index)) for index in range(5)]
    plan = Planner(BLOCK, CHUNK).plan(spans)
    assert _tile_reads(plan) == [(slice(0, 5), list(shared))]
    assert sum(len(slab.layout.blocks) for slab in plan.slabs) == 5


def test_a_tree_is_read_level_by_level() -> None:
    root, left, right = tuple(range(1, 17)), tuple(range(20, 36)), tuple(range(40, 56))
    spans = [RowSpan(128, 1, (*root, *branch, 60 + i)) for i, branch in enumerate((left, right, left, right))]
    plan = Planner(BLOCK, CHUNK).plan(spans)
    reads = _tile_reads(plan)
    assert plan.order == [0, 2, 1, 3]
    assert (slice(0, 4), list(root)) in reads
    assert (slice(0, 2), list(left)) in reads
    assert (slice(2, 4), list(right)) in reads


def test_short_runs_are_not_worth_a_product() -> None:
    spans = [RowSpan(4, 1, (1, 2)), RowSpan(4, 1, (1, 3))]
    plan = Planner(BLOCK, CHUNK).plan(spans)
    assert plan.tiles == []


def test_a_plan_is_kept_while_the_tables_are_the_same_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = Planner._group
    monkeypatch.setattr(Planner, "_group", lambda self, spans: built.append(1) or original(self, spans))
    planner = Planner(BLOCK, CHUNK)
    tables = [(*range(1, 17), 20), (*range(1, 17), 21)]
    for position in (64, 65, 66):
        planner.plan([RowSpan(position, 1, table) for table in tables])
    assert len(built) == 1
    planner.plan([RowSpan(66, 1, tables[0]), RowSpan(66, 1, (*tables[1][:-1], 30))])
    assert len(built) == 2


def test_a_window_that_is_reached_ends_sharing() -> None:
    shared = tuple(range(1, 17))
    planner = Planner(BLOCK, CHUNK, window=66)
    spans = [(*shared, 20), (*shared, 21)]
    assert planner.plan([RowSpan(64, 1, table) for table in spans]).tiles
    assert not planner.plan([RowSpan(66, 1, table) for table in spans]).tiles


def _places(blocks: torch.Tensor) -> torch.Tensor:
    """Pool positions of each item's keys, [items, keys]."""
    return (blocks[:, :, None] * BLOCK + torch.arange(BLOCK)).flatten(1)


def _check_seen(spans: list[RowSpan], seen: list[list[int]]) -> None:
    """Each packed row has seen each of its positions once."""
    rows = iter(seen)
    for span in spans:
        for position in range(span.start, span.start + span.rows):
            wanted = [span.blocks[p // BLOCK] * BLOCK + p % BLOCK for p in range(position + 1)]
            assert sorted(next(rows)) == sorted(wanted)


@given(case=cases())
def test_every_key_is_seen_once(case: Case) -> None:
    plan = Planner(BLOCK, CHUNK).plan(case.spans)
    seen: list[list[int]] = [[] for _ in range(plan.rows)]
    for slab in plan.slabs:
        layout = slab.layout
        for row, places, mask in zip(
            layout.item_rows.tolist(), _places(layout.blocks), slab.mask, strict=True
        ):
            seen[layout.rows.start + row] += places[mask == 0].tolist()
    for tile in plan.tiles:
        (places,) = _places(tile.blocks[None])
        for index, row in enumerate(range(tile.rows.start, tile.rows.stop)):
            seen[row] += places.tolist() if tile.mask is None else places[tile.mask[index] == 0].tolist()
    _check_seen([case.spans[index] for index in plan.order], seen)


@given(case=cases(max_rows=40), share=st.booleans())
def test_every_key_is_seen_once_at_its_entry(case: Case, share: bool) -> None:
    plan = FixedPlanner(BLOCK, CHUNK, share=share).plan(case.spans)
    seen: list[list[int]] = [[] for _ in range(plan.rows)]
    for slab in plan.slabs:
        base, count = slab.rows.start, slab.rows.stop - slab.rows.start
        filled: dict[int, tuple[int, list[int]]] = {}
        own = zip(
            slab.own.rows.tolist(),
            slab.own.entries.tolist(),
            _places(slab.own.blocks),
            slab.mask,
            strict=True,
        )
        for row, entry, places, mask in own:
            filled[entry] = (row, places[mask == 0].tolist())
        if slab.shared is not None:
            rows = slab.shared.rows[slab.shared.tile].flatten()[slab.shared.kept].tolist()
            places = _places(slab.shared.blocks).repeat_interleave(TILE_ROWS, 0)[slab.shared.kept]
            for row, entry, keys in zip(rows, slab.shared.entries.tolist(), places, strict=True):
                assert entry not in filled
                filled[entry] = (row, keys.tolist())
        assert max(filled) < slab.chunks * count
        assert slab.full == (len(filled) == slab.chunks * count)
        for entry, (row, keys) in filled.items():
            assert entry % count == row
            seen[base + row] += keys
    _check_seen([case.spans[index] for index in plan.order], seen)


def test_fixed_siblings_read_their_prefix_once() -> None:
    shared = tuple(range(1, 17))
    spans = [RowSpan(65, 1, (*shared, 20 + index)) for index in range(20)]
    (slab,) = FixedPlanner(BLOCK, CHUNK, share=True).plan(spans).slabs
    assert slab.shared is not None
    assert len(slab.shared.tile) == 2 * 8
    assert len(slab.own.rows) == 20


def test_a_fixed_layout_is_kept_while_rows_stay_in_their_chunk() -> None:
    planner = FixedPlanner(BLOCK, CHUNK, share=True)
    tables = [(1, 2, 3, 4, 5 + index) for index in range(4)]
    layouts = [planner.plan([RowSpan(p, 1, table) for table in tables]).slabs[0].own for p in (16, 17, 19)]
    assert layouts[0] is layouts[1] is layouts[2]
    tables[2] = (1, 2, 3, 4, 30)
    assert planner.plan([RowSpan(19, 1, table) for table in tables]).slabs[0].own is not layouts[0]


def test_a_chunk_that_cuts_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="key_chunk 10 is not a multiple of the block size 4"):
        Planner(4, 10)
    with pytest.raises(ValueError, match="key_chunk 10 is not a multiple of the block size 4"):
        FixedPlanner(4, 10, share=True)
