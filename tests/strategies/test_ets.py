"""`ets` on the real orchestrator: what it prunes for its KV, what for its width, and what it pays."""

import sys
from typing import Any

import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Solution
from branchwise.strategies.ets import Ets
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, outside_engine, solve, uneven, writer
from support.trees import TreeEngine, planted, reasons, wandering

KV, WIDTH = "kv: not worth its tokens", "no width left for it"
FIRST = {"0.0": "aa9;", "0.1": "bb8;", "0.2": "cccccccccccc1;", "0.3": "d1;"}
"""REBASE deals 4 places as 3, 1, 0, 0: shares .75, .25, 0, 0; the KV is 4, 4, 14 and 3 of 25 tokens."""


def run(engine: TreeEngine, strategy: Ets, budget: Budget | None = None, **options: Any) -> Solution:
    solution = solve(engine, strategy, budget, verifier="prm", **options)
    assert not engine.broken
    assert engine.live_sequences == 0
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_paid
    assert solution.graph.flops_spent == solution.usage.flops
    return solution


def widths(solution: Solution) -> list[dict[str, int]]:
    return [note["widths"] for note in solution.graph.notes if "widths" in note]


def noted(solution: Solution, name: str) -> list[dict[str, Any]]:
    return [note for note in solution.graph.notes if note["note"] == name]


def test_a_leaf_without_a_share_is_pruned_for_its_kv():
    solution = run(planted(FIRST), Ets(width=4, lambda_s=0.0))
    assert reasons(solution, KV) == {"0.2", "0.3"}
    first = noted(solution, "ets: selected")[0]
    assert (first["kept"], first["kv_tokens"], first["kv_tokens_of_all"]) == (["0.0", "0.1"], 8, 25)
    assert widths(solution)[0] == {"0.0": 3, "0.1": 1}


def test_coverage_keeps_a_leaf_that_then_gets_no_width():
    """Each of four clusters is worth 1.4 / 4 = .35: more than 3 of 25 tokens, less than 14 of 25."""
    solution = run(planted(FIRST), Ets(width=4, lambda_s=1.4))
    assert noted(solution, "ets: selected")[0]["kept"] == ["0.0", "0.1", "0.3"]
    assert reasons(solution, KV) == {"0.2"}
    assert reasons(solution, WIDTH) == {"0.3"}


def test_of_like_steps_one_stays_where_unlike_ones_both_would():
    """Both have half of the share and of the KV: at 1.1 for all KV the second pays only where it covers."""
    strategy = Ets(width=2, dedup=False, lambda_c=1.1)
    alike = noted(run(planted({"0.0": "aaab5;", "0.1": "aaab5;"}), strategy), "ets: selected")[0]
    assert (alike["clusters"], alike["kept"]) == (1, ["0.0"])
    unlike = noted(run(planted({"0.0": "aaab5;", "0.1": "wxyz5;"}), strategy), "ets: selected")[0]
    assert (unlike["clusters"], unlike["kept"]) == (2, ["0.0", "0.1"])


def test_deeper_leaves_share_the_nodes_above_them():
    steps = FIRST | {"0.0.0": "e8;", "0.0.1": "f8;", "0.0.2": "g8;", "0.1.0": "hh1;"}
    second = noted(run(planted(steps), Ets(width=4, lambda_s=0.0)), "ets: selected")[1]
    assert second["kv_tokens_of_all"] == 4 + 3 * 3 + 4 + 4, "the first step of 0.0 counts once"
    assert second["kept"] == ["0.0.0", "0.0.1", "0.0.2"]
    assert second["kv_tokens"] == 4 + 3 * 3


def test_finished_paths_take_their_place_for_good():
    steps = {"0.0": "a9;", "0.1": "b9;", "0.2": "|1$"}
    solution = run(planted(steps), Ets(width=3))
    assert sum(widths(solution)[0].values()) == 2


def test_its_peak_kv_is_below_that_of_keeping_all():
    """The dear leaf goes before anything grows on it."""
    steps = {"0.0": "aa5;", "0.1": f"{'c' * 40}5;"} | {f"0.1.{i}": f"{'d' * 9}5;" for i in range(4)}
    priced = run(planted(steps), Ets(width=4, lambda_s=0.0, lambda_c=2.0))
    free = run(planted(steps), Ets(width=4, lambda_s=0.0, lambda_c=0.0))
    assert reasons(priced, KV) == {"0.1"}
    assert not reasons(free, KV)
    assert priced.usage.engine["kv_peak_tokens"] < free.usage.engine["kv_peak_tokens"]


def test_scipy_is_asked_for_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    engine = planted(FIRST)
    with pytest.raises(UsageError, match="strategy ets needs scipy"):
        solve(engine, Ets(), verifier="prm")
    assert engine.tokens_paid == 0


def test_it_needs_step_scores():
    with pytest.raises(CapabilityError, match="strategy ets needs a verifier"):
        solve(ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)}), Ets())


def test_the_speed_does_not_matter():
    slow, fast = (
        run(wandering(pace=pace), Ets(width=6), Budget(tokens=300)) for pace in (uneven, lambda s, p: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)


@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 250),
    fail_at=st.none() | st.integers(0, 120),
    strategy=st.builds(
        Ets,
        width=st.integers(1, 8),
        lambda_c=st.floats(0.0, 4.0),
        lambda_s=st.floats(0.0, 4.0),
        depth=st.integers(1, 8),
        dedup=st.booleans(),
    ),
)
def test_budget_and_books_hold_whatever_fails(tokens: int, fail_at: int | None, strategy: Ets) -> None:
    solution = run(wandering(fail_at=fail_at, max_model_len=60), strategy, Budget(tokens=tokens))
    assert solution.usage.tokens <= tokens
    if tokens > 60 and (fail_at is None or strategy.width > 1):
        assert solution.candidates
