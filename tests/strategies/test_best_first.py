"""`best_first` on the real orchestrator: the order of expansions."""

import pytest
from branchwise.strategies.best_first import BestFirst
from support.searching import DigitVerifier, solve
from support.trees import Unsure, planted, reasons, wandering

TREE = {
    "0.0": "a5;",
    "0.1": "a9;",
    "0.1.0": "b2;",
    "0.1.1": "b4;",
    "0.0.0": "b8;",
    "0.0.1": "b1;",
    "0.0.0.0": "|7$",
    "0.0.0.1": "c7;",
}


def order(solution):
    return [list(note["chosen"]) for note in solution.graph.notes if "chosen" in note]


def test_the_best_open_leaf_of_the_whole_tree_is_next():
    solution = solve(planted(TREE), BestFirst(width=2, expansions=4, parallel=1), verifier="prm")
    assert order(solution) == [["0.1"], ["0.0"], ["0.0.0"], []]
    assert "7" in {candidate.answer for candidate in solution.candidates}


def test_several_leaves_are_expanded_at_a_time():
    solution = solve(planted(TREE), BestFirst(width=2, expansions=4, parallel=2), verifier="prm")
    assert order(solution) == [["0.1", "0.0"], ["0.0.0"], []]


@pytest.mark.parametrize(("expansions", "parallel"), [(1, 1), (2, 5), (7, 3), (12, 4)])
def test_the_expansions_are_a_limit(expansions: int, parallel: int):
    strategy = BestFirst(width=3, expansions=expansions, parallel=parallel)
    solution = solve(wandering(letters="abcdef", steps=30), strategy, verifier="prm")
    assert solution.graph.notes[-1]["expanded"] == expansions
    assert max(len(chosen) for chosen in order(solution)) <= parallel


def test_what_is_left_concludes_until_there_are_as_many_answers_as_children():
    solution = solve(planted(TREE), BestFirst(width=2, expansions=4, parallel=1), verifier="prm")
    assert [candidate.id for candidate in solution.candidates] == ["0.0.0.0", "0.0.0.1"]
    assert reasons(solution, "not reached") == {"0.1.0", "0.1.1", "0.0.1"}


def test_the_depth_is_a_limit():
    solution = solve(wandering(steps=30), BestFirst(width=2, depth=2, expansions=99), verifier="prm")
    assert max(node.branch.count(".") for node in solution.graph.nodes()) == 2


def test_equal_children_are_one_and_unknown_values_come_last():
    tree = {"0.0": "a9;", "0.1": "a9;", "0.2": "b1;"}
    solution = solve(planted(tree), BestFirst(width=3, expansions=3, parallel=1), verifier=Unsure("a"))
    assert order(solution)[0] == ["0.2"]
    assert reasons(solution, "duplicate of 0.0") == {"0.1"}


def test_a_verified_path_ends_it():
    solution = solve(planted(TREE), BestFirst(width=2), verifier=DigitVerifier("7"))
    assert (solution.answer, solution.verified) == ("7", True)
