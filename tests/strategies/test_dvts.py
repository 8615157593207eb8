"""`dvts` on the real orchestrator: subtrees that never compete."""

import pytest
from branchwise.strategies.dvts import Dvts
from support.searching import DigitVerifier, solve
from support.trees import planted, reasons, wandering

TREE = {
    "0.0.0": "a9;",
    "0.0.1": "a8;",
    "0.1.0": "a1;",
    "0.1.1": "a2;",
    "0.0.0.0": "b3;",
    "0.0.0.1": "|4$",
    "0.1.1.0": "|7$",
    "0.1.1.1": "b5;",
    "0.1.1.1.0": "|6$",
    "0.1.1.1.1": "c0;",
}


def best(solution):
    return [note["best"] for note in solution.graph.notes if "best" in note]


def test_each_subtree_goes_on_from_its_own_best():
    solution = solve(planted(TREE), Dvts(n=4, width=2), verifier=DigitVerifier("9"))
    assert best(solution)[:2] == [["0.0.0", "0.1.1"], ["0.0.0.0", "0.1.1.1"]]
    assert reasons(solution, "not the best of its subtree") >= {"0.0.1", "0.1.0"}
    assert {"0.0.0.1", "0.1.1.0", "0.1.1.1.0"} < {candidate.id for candidate in solution.candidates}


def test_a_subtree_ends_with_its_best_child():
    solution = solve(planted(TREE), Dvts(n=4, width=2), verifier="prm")
    assert best(solution) == [["0.0.0", "0.1.1"], ["0.1.1.1"], []]
    assert reasons(solution, "not the best of its subtree") == {"0.0.1", "0.1.0", "0.0.0.0", "0.1.1.1.1"}
    assert {c.id: c.answer for c in solution.candidates} == {
        "0.0.0.1": "4",
        "0.1.1.0": "7",
        "0.1.1.1.0": "6",
    }


def test_a_child_without_a_sibling_is_not_scored_until_a_choice_needs_it():
    tree = {"0.0.0": "a5;", "0.0.1": "a5;", "0.0.0.0": "b3;", "0.0.0.1": "c4;", "0.0.0.1.0": "|7$"}
    engine = planted(tree)
    solution = solve(engine, Dvts(n=2, width=2), verifier=DigitVerifier("7"))
    assert best(solution)[:2] == [["0.0.0"], ["0.0.0.1"]]
    lone = solve(planted(tree), Dvts(n=2, width=2, depth=1), verifier=DigitVerifier("7"))
    assert solution.usage.scored_tokens > lone.usage.scored_tokens == 0
    assert not engine.broken


def test_equal_steps_of_two_subtrees_both_go_on():
    tree = {"0.0.0": "a5;", "0.0.1": "a5;", "0.1.0": "a5;", "0.1.1": "b1;"}
    solution = solve(planted(tree), Dvts(n=4, width=2), verifier="prm")
    assert best(solution)[0] == ["0.0.0", "0.1.0"]
    assert reasons(solution, "duplicate of 0.0.0") == {"0.0.1"}


@pytest.mark.pins("search-and-learn dvts.py")
def test_the_tokens_of_all_subtrees_are_counted():
    engine = wandering()
    solution = solve(engine, Dvts(n=8, width=4), verifier="prm")
    assert solution.usage.tokens == solution.graph.tokens_spent == engine.tokens_paid > 0


@pytest.mark.parametrize(
    ("n", "width", "widths"), [(4, 2, [2, 2]), (7, 3, [3, 2, 2]), (3, 4, [3]), (1, 1, [1])]
)
def test_any_n_and_width_are_n_children_in_all(n: int, width: int, widths: list[int]):
    solution = solve(wandering(steps=9), Dvts(n=n, width=width, depth=1, dedup=False), verifier="prm")
    written = [node.branch for node in solution.graph.nodes() if node.kind == "step" and node.text != "|"]
    children = {branch for branch in written if branch.count(".") == 2}
    assert [
        sum(child.startswith(f"0.{tree}.") for child in children) for tree in range(len(widths))
    ] == widths


def test_one_subtree_after_the_other_is_the_same_search_and_ends_sooner():
    together, apart = (
        solve(planted(TREE), Dvts(n=4, width=2, parallel=parallel), verifier="prm") for parallel in (None, 1)
    )
    assert together.candidates == apart.candidates
    assert together.usage.tokens == apart.usage.tokens
    first = solve(planted(TREE), Dvts(n=4, width=2, parallel=1), verifier=DigitVerifier("4"))
    assert (first.answer, {node.branch[:3] for node in first.graph.nodes() if node.kind == "step"}) == (
        "4",
        {"0.0"},
    )
