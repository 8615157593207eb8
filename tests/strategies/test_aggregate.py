"""Recursive aggregation: populations, seeded subsets, and the vote of the last population."""

import re
from typing import Any

import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.aggregate import Aggregate
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine
from support.searching import DigitVerifier, outside_engine, solve, uneven

ROOM = 8000


def shown(prompt: str) -> list[int]:
    """The answers of the candidates that a prompt shows."""
    return [int(answer) for answer in re.findall(r"Final answer of attempt \d+: (\d+)", prompt)]


def script(text: str, seed: int) -> str:
    """First a digit by its seed; then ten more than the least that is shown."""
    thought, end, said = text.partition("|")
    seen = shown(text)
    answer = str(min(seen) + 10 if seen else seed % 7)
    return f"{answer}$"[len(said) :] if end else "ab;|"[len(thought.rpartition(":")[2])]


def sinking(text: str, seed: int) -> str:
    """First 3, then 5."""
    said = text.partition("|")[2]
    answer = "5" if shown(text) else "3"
    return f"{answer}$"[len(said) :] if "|" in text else "ab|"[len(text.rpartition(":")[2])]


def engine(**options: Any) -> ScriptedEngine:
    return ScriptedEngine({"policy": script}, max_model_len=ROOM, **options)


def rounds_of(solution: Solution) -> list[int]:
    return [int(candidate.answer or -1) // 10 for candidate in solution.candidates]


def test_each_round_draws_a_subset_for_each_of_its_solutions() -> None:
    solution = solve(engine(), Aggregate(n=5, k=3, rounds=2))
    assert sorted(rounds_of(solution)) == [0] * 5 + [1] * 5 + [2] * 5
    drawn = [note["of"] for note in solution.graph.notes if note["note"] == "revision"]
    first = {candidate.id for candidate in solution.candidates if int(candidate.answer or -1) < 10}
    assert [len(subset) for subset in drawn] == [3] * 10
    assert all(len(set(subset)) == 3 and set(subset) <= first for subset in drawn[:5])
    assert not any(set(subset) & first for subset in drawn[5:])
    populations = [note for note in solution.graph.notes if note["note"] == "population"]
    assert [(p["round"], p["aggregates"], p["of"]) for p in populations] == [(1, 5, 5), (2, 5, 5)]


def test_the_last_population_votes() -> None:
    run = ScriptedEngine({"policy": sinking}, max_model_len=ROOM)
    solution = solve(run, Aggregate(n=4, k=2, rounds=1))
    assert sorted(candidate.answer or "" for candidate in solution.candidates) == ["3"] * 4 + ["5"] * 4
    assert solution.answer == "5"


def test_a_population_that_was_cut_short_votes_with_the_one_before_it() -> None:
    run = ScriptedEngine({"policy": sinking}, max_model_len=ROOM)
    solution = solve(run, Aggregate(n=4, k=2, rounds=1), Budget(tokens=4 * 5 + 8, answer_reserve=0))
    assert solution.reason is Reason.BUDGET
    assert solution.answer == "3"


def test_the_same_seed_draws_the_same_subsets_at_any_pace() -> None:
    plain = outside_engine(solve(engine(), Aggregate(n=6, k=2, rounds=2), seed=5))
    assert outside_engine(solve(engine(pace=uneven), Aggregate(n=6, k=2, rounds=2), seed=5)) == plain
    assert outside_engine(solve(engine(), Aggregate(n=6, k=2, rounds=2), seed=6)) != plain


def test_it_stops_at_a_sound_pass() -> None:
    run = ScriptedEngine({"policy": sinking}, max_model_len=ROOM)
    solution = solve(run, Aggregate(n=4, k=4, rounds=3), verifier=DigitVerifier("5"))
    assert (solution.reason, solution.answer) == (Reason.SOLVED, "5")
    assert [candidate.answer for candidate in solution.candidates] == ["3"] * 4 + ["5"]
    assert run.live_sequences == 0


def test_one_branch_that_fails_leaves_seven() -> None:
    run = engine(fail_at=20)
    solution = solve(run, Aggregate(n=8, k=2, rounds=0))
    assert len(solution.candidates) == 7
    assert solution.answer is not None
    assert run.live_sequences == 0


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 6),
    k=st.integers(1, 6),
    rounds=st.integers(0, 3),
    tokens=st.integers(3, 120),
    fail_at=st.none() | st.integers(1, 60),
)
def test_all_is_paid_within_any_budget(n: int, k: int, rounds: int, tokens: int, fail_at: int | None) -> None:
    run = engine(fail_at=fail_at)
    solution = solve(run, Aggregate(n=n, k=min(k, n), rounds=rounds), Budget(tokens=tokens, answer_reserve=2))
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.usage.tokens <= tokens
    assert solution.usage.tokens == solution.graph.tokens_spent == run.tokens_sampled + forced
    assert solution.graph.flops_spent == solution.usage.flops
    assert run.live_sequences == 0
    if fail_at is None:
        assert solution.answer is not None


def test_a_subset_larger_than_the_population_is_refused() -> None:
    with pytest.raises(UsageError, match="k=5 of n=4: give a k of at most n"):
        Aggregate(n=4, k=5)
