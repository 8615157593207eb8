"""Steps for work plans, and the keys that the rows of a plan see."""

import numpy as np
from branchwise.kernels.tables import RowSpan, TreeSpan
from branchwise.kernels.work import FIRST_KEY, FIRST_PAGE, FIRST_SLOT, KEYS, SLOTS, WorkPlan
from hypothesis import strategies as st

from .items import seen_positions
from .paged import BLOCK, Case


def seen(plan: WorkPlan) -> list[list[tuple[int, int]]]:
    """Per row the keys it sees, (position, place in the pool), in the order of its slots.

    Masks that the plan says it has not are not applied, as in the kernel.
    """
    arrays, size = plan.arrays, plan.block_size
    masks = zip(*(part[: plan.slots].tolist() for part in _masks(plan)), strict=True)
    mask_of_slot = list(masks)
    pages = arrays.pages.tolist()
    of_slot: dict[int, list[tuple[int, int]]] = {}
    for kind, count in enumerate(plan.items):
        assert arrays.counts[kind, 0] == count
        for item in arrays.items[kind, :, :count].T.tolist():
            assert 0 < item[SLOTS] <= plan.tiling.rows(kind)
            assert item[FIRST_KEY] % size == 0
            keys = [
                (item[FIRST_KEY] + key, pages[item[FIRST_PAGE] + key // size] * size + key % size)
                for key in range(item[KEYS])
            ]
            for slot in range(item[FIRST_SLOT], item[FIRST_SLOT] + item[SLOTS]):
                assert slot not in of_slot
                of_slot[slot] = [key for key in keys if _visible(plan, mask_of_slot[slot], key[0])]
    assert sorted(of_slot) == list(range(plan.slots))
    ptr = arrays.row_ptr
    merged = arrays.row_slots[: ptr[plan.rows]].tolist()
    assert (ptr[plan.rows :] == len(merged)).all()
    assert len(set(merged)) == len(merged)
    assert not any(keys for slot, keys in of_slot.items() if slot not in set(merged))
    rows = [arrays.row_slots[ptr[row] : ptr[row + 1]].tolist() for row in range(plan.rows)]
    assert all(arrays.row_of_slot[slot] == row for row, slots in enumerate(rows) for slot in slots)
    return [[key for slot in slots for key in of_slot[slot]] for slots in rows]


def _masks(plan: WorkPlan) -> tuple[np.ndarray, ...]:
    return plan.arrays.limit, plan.arrays.low, plan.arrays.bits, plan.arrays.bit_base


def _visible(plan: WorkPlan, masks: tuple[int, ...], position: int) -> bool:
    limit, low, bits, base = masks
    if plan.limited and position >= limit:
        return False
    if plan.windowed and position < low:
        return False
    bit = position - base
    return not plan.treed or bit < 0 or bool(bits >> min(bit, 63) & 1)


def expected(spans: list[RowSpan], window: int | None) -> list[list[tuple[int, int]]]:
    """What `seen` must find for the rows of blocks of `BLOCK` positions."""
    return [
        [(p, span.blocks[p // BLOCK] * BLOCK + p % BLOCK) for p in seen_positions(span, row, window)]
        for span in spans
        for row in range(span.rows)
    ]


def siblings(count: int, shared: int, own: int, *, block: int = BLOCK) -> list[RowSpan]:
    """`count` rows behind `shared` common blocks, each at the last position of `own` blocks of its own."""
    common = tuple(range(1, shared + 1))
    tables = [
        (*common, *range(shared + 1 + index * own, shared + 1 + (index + 1) * own)) for index in range(count)
    ]
    return [RowSpan((shared + own) * block - 1, 1, table) for table in tables]


def moved(spans: list[RowSpan], grow: bool, following: int) -> list[RowSpan]:
    """The rows one position on; a table gets a block where one is crossed, or before if it is to `grow`."""
    result = []
    for index, span in enumerate(spans):
        crossed = (span.start + 1) // BLOCK >= len(span.blocks)
        longer = (*span.blocks, following + index) if crossed or grow else span.blocks
        result.append(RowSpan(span.start + 1, 1, longer))
    return result


@st.composite
def drafted(draw: st.DrawFn, case: Case) -> list[RowSpan]:
    """The case's spans, some of them draft trees."""
    spans: list[RowSpan] = []
    for span in case.spans:
        if not draw(st.booleans()):
            spans.append(span)
            continue
        ancestors: list[int] = []
        for node in range(span.rows):
            parent = draw(st.integers(-1, node - 1))
            ancestors.append((ancestors[parent] if parent >= 0 else 0) | 1 << node)
        spans.append(TreeSpan(span.start, span.rows, span.blocks, tuple(ancestors)))
    return spans
