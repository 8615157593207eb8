"""`rebase` on the real orchestrator, and how it deals out the width."""

from itertools import pairwise
from typing import Any

import pytest
from branchwise.engine.errors import UsageError
from branchwise.strategies.rebase import Rebase, balanced_widths
from hypothesis import given
from hypothesis import strategies as st
from support.searching import DigitVerifier, solve
from support.trees import planted, reasons


@pytest.mark.parametrize(
    ("rewards", "width", "expected"),
    [
        ([0.9, 0.8, 0.5, 0.1], 16, [10, 5, 1, 0]),
        ([0.5] * 4, 6, [2, 2, 2, 0]),
        ([0.99, 0.01], 4, [4, 0]),
        ([0.7], 5, [5]),
        ([0.7, 0.6], 0, [0, 0]),
        ([], 5, []),
        ([0.9, None], 4, [2, 2]),
        ([None, None], 3, [2, 1]),
    ],
)
def test_golden_widths(rewards: list[float | None], width: int, expected: list[int]):
    assert balanced_widths(rewards, width, 0.2) == expected


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40),
    st.integers(0, 300),
    st.sampled_from([0.01, 0.05, 0.2, 1.0, 100.0]),
)
def test_the_widths_are_the_width_and_fall_with_the_reward(rewards: list[float], width: int, balance: float):
    rewards.sort(reverse=True)
    widths = balanced_widths(rewards, width, balance)
    assert sum(widths) == width
    assert min(widths) >= 0
    assert all(worse <= better + 1 for better, worse in pairwise(widths))


TREE = {
    "0.0": "a9;",
    "0.1": "a8;",
    "0.2": "a1;",
    "0.3": "|4$",
    "0.0.0": "b9;",
    "0.0.1": "|7$",
    "0.1.0": "b1;",
    "0.0.0.0": "|5$",
}


def test_each_leaf_gets_its_share_and_finished_paths_take_theirs():
    solution = solve(planted(TREE), Rebase(width=4), verifier="prm")
    notes = [note for note in solution.graph.notes if "widths" in note]
    assert [note["widths"] for note in notes] == [
        {"0.0": 2, "0.1": 1, "0.2": 0},
        {"0.0.0": 2, "0.1.0": 0},
        {},
    ]
    assert reasons(solution, "no width left for it") == {"0.2", "0.1.0"}
    assert [c.answer for c in solution.candidates] == ["5", "7", "4"]


def test_the_depth_ends_it_and_what_is_left_concludes():
    solution = solve(planted(TREE), Rebase(width=4, depth=1), verifier="prm")
    assert [c.id for c in solution.candidates] == ["0.0", "0.1", "0.2", "0.3"]
    assert all(candidate.complete for candidate in solution.candidates)


def test_a_verified_path_ends_it():
    solution = solve(planted(TREE), Rebase(width=4), verifier=DigitVerifier("4"))
    assert (solution.answer, solution.verified, len(solution.candidates)) == ("4", True, 1)


@pytest.mark.parametrize("wrong", [{"width": 0}, {"balance": 0.0}, {"depth": 0}])
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]):
    with pytest.raises(UsageError, match="strategy rebase: "):
        Rebase(**wrong)
