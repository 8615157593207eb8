"""Stop strings over text that comes in parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from branchwise.serve.stops import StopCut, cut_at

TEXT = st.text("abc", max_size=12)


@given(st.lists(TEXT, max_size=8), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_parts_are_cut_where_the_whole_is(parts: list[str], stops: list[str]) -> None:
    whole = "".join(parts)
    cut = StopCut(stops)
    sent = "".join(cut.push(part) for part in parts) + cut.end()
    ends = [(at + len(stop), at) for stop in stops if (at := whole.find(stop)) >= 0]
    assert sent == (whole[: min(ends)[1]] if ends else whole)
    assert cut.cut == bool(ends)
    assert cut_at(whole, stops) == (sent, cut.cut)


def test_only_what_may_be_the_start_of_a_stop_string_is_held_back() -> None:
    assert StopCut([]).push("abc") == "abc"
    cut = StopCut(["abcd"])
    assert cut.push("xyz") == "xyz"
    assert cut.push("ab") == ""
    assert cut.push("ac") == "abac"
    assert cut.push("abc") == ""
    assert cut.push("de") == ""
    assert cut.cut
