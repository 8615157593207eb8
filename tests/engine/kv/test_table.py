"""The block table keeps its tuple while it is unchanged."""

from branchwise.engine.kv.table import BlockTable


def test_the_tuple_is_the_same_object_until_something_changes() -> None:
    table = BlockTable((3, 5))
    before = table.blocks
    assert table.with_writes(None, ()) is before
    assert table.trim(2) == ()
    assert table.blocks is before
    grown = table.with_writes(None, (7,))
    assert grown == (3, 5, 7)
    assert table.blocks is before
    table.assign(grown)
    assert table.blocks is grown


def test_writes_replace_the_copied_block_and_append_fresh_ones() -> None:
    table = BlockTable((3, 5))
    assert table.with_writes((1, 9), (7, 8)) == (3, 9, 7, 8)
    table.replace(0, 4)
    assert table.blocks == (4, 5)
    assert table.trim(1) == (5,)
    assert len(table) == 1
