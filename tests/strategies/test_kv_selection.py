"""The integer program of ETS against enumeration, and what goes into it."""

import itertools
import sys

import pytest
from branchwise.engine.errors import UsageError
from branchwise.strategies.kv_selection import (
    PREFERENCE,
    Tradeoff,
    Twig,
    best_subset,
    check_solver,
    cluster_steps,
    embed_step,
    objective,
)
from hypothesis import given, settings
from hypothesis import strategies as st


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Twig], dict[str, int], list[int], Tradeoff]:
    """Up to seven leaves under up to three inner nodes in two levels."""
    count = draw(st.integers(1, 7))
    weights = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count))
    total = max(1, sum(weights))
    twigs, tokens = [], {}
    for leaf in range(count):
        first = draw(st.integers(0, 1))
        second = draw(st.integers(0, 1))
        path = (f"{first}", f"{first}.{second}", f"leaf {leaf}")
        twigs.append(Twig(weights[leaf] / total, path))
        for node in path:
            tokens.setdefault(node, draw(st.integers(0, 30)))
    clusters = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    lambda_c, lambda_s = draw(st.floats(0.0, 3.0)), draw(st.floats(0.0, 3.0))
    return twigs, tokens, clusters, Tradeoff(lambda_c=lambda_c, lambda_s=lambda_s)


@settings(max_examples=60, deadline=None)
@given(trees())
def test_the_program_finds_what_enumeration_finds(case) -> None:
    twigs, tokens, clusters, tradeoff = case
    kept = best_subset(twigs, tokens, clusters, tradeoff)
    assert any(kept)
    subsets = itertools.product([False, True], repeat=len(twigs))
    best = max(objective(subset, twigs, tokens, clusters, tradeoff) for subset in subsets if any(subset))
    slack = PREFERENCE * len(twigs) ** 2 + 1e-6
    assert objective(kept, twigs, tokens, clusters, tradeoff) >= best - slack


def test_the_objective_by_hand():
    """Two leaves share a node of 6 tokens, a third stands alone: 6 + 2 + 2 + 10 tokens in all."""
    twigs = [Twig(0.5, ("a", "a0")), Twig(0.3, ("a", "a1")), Twig(0.2, ("b",))]
    tokens = {"a": 6, "a0": 2, "a1": 2, "b": 10}
    tradeoff = Tradeoff(lambda_c=1.0, lambda_s=1.4)
    both = objective([True, True, False], twigs, tokens, [0, 0, 1], tradeoff)
    assert both == pytest.approx(0.8 - 10 / 20 + 0.7)
    every = objective([True, True, True], twigs, tokens, [0, 0, 1], tradeoff)
    assert every == pytest.approx(1.0 - 1.0 + 1.4)
    one = objective([True, False, True], twigs, tokens, [0, 0, 1], tradeoff)
    assert one == pytest.approx(0.7 - 18 / 20 + 1.4)


def test_the_real_tokens_decide_not_the_number_of_nodes():
    """Two lone leaves of one share: the long one goes, whichever it is."""
    twigs = [Twig(0.5, ("a",)), Twig(0.5, ("b",))]
    dear = Tradeoff(lambda_c=1.0, lambda_s=0.0)
    assert best_subset(twigs, {"a": 30, "b": 10}, [0, 0], dear) == [False, True]
    assert best_subset(twigs, {"a": 10, "b": 30}, [0, 0], dear) == [True, False]


def test_a_sibling_is_cheap_a_stranger_is_dear():
    """On a kept node a leaf costs its own step alone; one elsewhere costs its whole path."""
    twigs = [Twig(0.6, ("a", "a0")), Twig(0.2, ("a", "a1")), Twig(0.2, ("b", "b0"))]
    tokens = {"a": 20, "a0": 5, "a1": 5, "b": 20, "b0": 5}
    kept = best_subset(twigs, tokens, [0, 0, 0], Tradeoff(lambda_c=1.0, lambda_s=0.0))
    assert kept == [True, True, False]


def test_coverage_keeps_what_is_new():
    twigs = [Twig(0.8, ("a",)), Twig(0.1, ("b",)), Twig(0.1, ("c",))]
    tokens = {"a": 10, "b": 10, "c": 10}
    priced = Tradeoff(lambda_c=1.0, lambda_s=0.0)
    assert best_subset(twigs, tokens, [0, 1, 1], priced) == [True, False, False]
    covering = Tradeoff(lambda_c=1.0, lambda_s=1.4)
    assert best_subset(twigs, tokens, [0, 1, 1], covering) == [True, True, False], "one of the two like ones"


def test_at_least_one_leaf_stays_and_equals_go_to_the_first():
    twigs = [Twig(0.25, (str(leaf),)) for leaf in range(4)]
    tokens = {str(leaf): 7 for leaf in range(4)}
    dear = Tradeoff(lambda_c=50.0, lambda_s=0.0)
    assert best_subset(twigs, tokens, [0, 0, 0, 0], dear) == [True, False, False, False]


def test_like_steps_are_one_cluster():
    steps = [[1, 2, 3, 4], [9, 8, 7], [1, 2, 3, 4], [9, 8, 7], [5]]
    assert cluster_steps(steps, 0.05) == [0, 1, 0, 1, 2]
    assert cluster_steps(steps, 2.0) == [0] * 5
    assert cluster_steps([[1, 2]], 0.05) == [0]
    assert cluster_steps([[], []], 0.05) == [0, 0]


def test_a_step_is_embedded_by_its_grams():
    vector = embed_step([4, 4, 4])
    assert sorted(vector[vector > 0]) == [2.0, 3.0], "(4) three times, (4, 4) twice"
    assert (embed_step([1, 2]) != embed_step([2, 1])).any()


def test_without_scipy_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(UsageError, match=r"needs scipy.*branchwise\[evals\]"):
        check_solver()
