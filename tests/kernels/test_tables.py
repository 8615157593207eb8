"""Block tables as a matrix: what stands in it, and how large it becomes."""

from branchwise.kernels.tables import TableMatrix
from hypothesis import given
from hypothesis import strategies as st

TABLES = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=6).map(tuple), min_size=1, max_size=9)


@given(st.lists(st.tuples(TABLES, st.integers(0, 3)), max_size=8))
def test_every_row_is_its_table_and_then_its_last_block(
    steps: list[tuple[list[tuple[int, ...]], int]],
) -> None:
    matrix = TableMatrix()
    for tables, spare in steps:
        filled = matrix.fill(tables, spare)
        for row, table in zip(filled, tables, strict=False):
            assert tuple(row[: len(table)]) == table
            assert (row[len(table) :] == table[-1]).all()
            assert len(row) >= len(table) + spare


def test_more_tables_make_no_wider_rows() -> None:
    matrix = TableMatrix()
    for count in range(1, 199):
        matrix.fill([(1, 2, 3)] * count, 1)
    filled = matrix.fill([(1, 2, 3)] * 199, 1)
    assert filled.shape[0] < 2 * 200
    assert filled.shape[1] == 4


def test_wider_tables_make_no_more_rows() -> None:
    matrix = TableMatrix()
    for width in range(1, 199):
        matrix.fill([tuple(range(width))], 0)
    filled = matrix.fill([tuple(range(199))], 0)
    assert filled.shape[0] == 1
    assert filled.shape[1] < 2 * 200
