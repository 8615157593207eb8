"""`ab_mcts` on the real orchestrator: answers refined in new prompts, steps in one tree."""

import re
from typing import Any

import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.ab_mcts import AbMcts, Unit
from branchwise.strategies.arm_posterior import Belief
from branchwise.verifiers.base import Candidate, Score
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine
from support.searching import DigitVerifier, outside_engine, solve, uneven
from support.trees import TreeEngine, digit_value, planted, wandering


class AnswerVerifier:
    """Not sound: the answer over ten."""

    name = "answer"
    sound = False
    oracle = False
    step_scores = False
    models: tuple[str, ...] = ()

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=None if candidate.answer is None else min(9, int(candidate.answer)) / 10)


class Silent(AnswerVerifier):
    """Cannot tell."""

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=None)


def improves(text: str, seed: int) -> str:
    """Answers one more than the attempt in the prompt, 1 or 2 without one."""
    prompt, _, written = text.rpartition(":" if "attempt" not in text else "none.:")
    last = re.search(r"answer of attempt 1: (\d+)", prompt)
    answer = seed % 2 + 1 if last is None else int(last.group(1)) + 1
    return f"ab;|{answer}$"[len(written) :] or "$"


def answers(**options: Any) -> ScriptedEngine:
    return ScriptedEngine({"policy": improves}, max_model_len=900, **options)


def expanded(solution: Solution) -> list[tuple[str, str, float | None]]:
    """(parent, child, score) of each expansion, in turn."""
    return [
        (note["of"], note["child"], note["score"])
        for note in solution.graph.notes
        if note["note"] == "ab_mcts: expanded"
    ]


def run_steps(engine: TreeEngine, budget: Budget | None = None, **options: Any) -> Solution:
    solution = solve(engine, AbMcts(unit=Unit.STEP, **options), budget, verifier="prm")
    assert not engine.broken
    assert engine.live_sequences == 0
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_paid
    assert solution.graph.flops_spent == solution.usage.flops
    return solution


@pytest.mark.parametrize("posterior", Belief)
def test_answers_are_refined_and_the_best_is_chosen(posterior: Belief) -> None:
    engine = answers()
    solution = solve(engine, AbMcts(expansions=20, posterior=posterior), verifier=AnswerVerifier())
    tree = expanded(solution)
    assert len(tree) == 20
    score_of = {child: score for _, child, score in tree}
    deeper = [(parent, score) for parent, _, score in tree if parent != "0"]
    assert deeper
    assert any(parent == "0" for parent, _, _ in tree[1:]), "it goes wider too"
    for parent, score in deeper:
        known = score_of[parent]
        assert known is not None
        assert score == pytest.approx(min(0.9, known + 0.1))
    assert solution.score == max(score for _, _, score in tree if score is not None)
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_sampled
    assert engine.live_sequences == 0


def test_a_batch_is_chosen_at_once_and_told_in_order():
    slow, fast = (
        solve(answers(pace=pace), AbMcts(expansions=12, batch=5), verifier=AnswerVerifier())
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)
    tree = expanded(slow)
    assert len(tree) == 12
    assert {parent for parent, _, _ in tree[:5]} == {"0"}, "nothing has scored yet"


def test_a_batch_is_at_most_five():
    with pytest.raises(UsageError, match="batch=6"):
        AbMcts(batch=6)


def test_it_stops_at_a_sound_pass():
    solution = solve(answers(), AbMcts(expansions=200), verifier=DigitVerifier("2"))
    assert (solution.reason, solution.answer) == (Reason.SOLVED, "2")


def test_scores_that_are_not_known_do_not_stop_it():
    solution = solve(answers(), AbMcts(expansions=6), verifier=Silent())
    assert [score for _, _, score in expanded(solution)] == [None] * 6


def test_without_room_for_a_refinement_only_new_answers_are_made():
    """The prompt of a refinement is longer than the context."""
    engine = ScriptedEngine({"policy": improves}, max_model_len=100)
    solution = solve(engine, AbMcts(expansions=12), verifier=AnswerVerifier())
    assert {parent for parent, _, _ in expanded(solution)} == {"0"}
    assert solution.answer == "2"


def test_steps_grow_in_one_tree_and_a_finished_path_is_not_extended():
    steps = {f"0.{i}": "a9;" for i in range(30)} | {f"0.{i}.{j}": "|5$" for i in range(30) for j in range(30)}
    solution = run_steps(planted(steps), expansions=25)
    tree = expanded(solution)
    children = {child for _, child, _ in tree}
    assert all(parent == "0" or parent in children for parent, _, _ in tree)
    assert any(parent.count(".") == 1 for parent, _, _ in tree)
    assert not any(parent.count(".") == 2 for parent, _, _ in tree), "answers are leaves"
    assert len(tree) == 25, "an equal path tells its score again"
    assert len(solution.candidates) == 1, "and votes once"


def test_steps_score_high_where_it_goes_deeper():
    solution = run_steps(planted({"0.0": "a9;", "0.1": "b1;", "0.2": "c1;"} | DEEPER), expansions=40)
    below = [parent for parent, _, _ in expanded(solution)]
    assert below.count("0.0") > below.count("0.1") + below.count("0.2")


DEEPER = {f"0.{i}.{j}": f"d{9 if i == 0 else 1};" for i in range(3) for j in range(40)} | {
    f"0.{i}": "e1;" for i in range(3, 60)
}


def test_with_nothing_finished_the_path_of_the_highest_score_answers():
    steps = {f"0.{i}": f"a{i};" for i in range(4)}
    solution = run_steps(planted(steps), expansions=1)
    (candidate,) = solution.candidates
    assert candidate.complete
    assert candidate.id == "0.0.0"
    assert digit_value(next(node.text for node in solution.graph.nodes() if node.branch == "0.0")) == 0.0


def test_steps_need_step_scores_and_answers_a_verifier():
    with pytest.raises(CapabilityError, match="strategy ab_mcts needs a verifier"):
        solve(answers(), AbMcts())
    with pytest.raises(CapabilityError, match="single steps"):
        solve(answers(), AbMcts(unit=Unit.STEP), verifier=DigitVerifier("1"))


@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 250),
    fail_at=st.none() | st.integers(0, 120),
    expansions=st.integers(1, 25),
    batch=st.integers(1, 5),
    posterior=st.sampled_from(Belief),
)
def test_budget_and_books_of_steps_hold_whatever_fails(
    tokens: int, fail_at: int | None, expansions: int, batch: int, posterior: Belief
) -> None:
    engine = wandering(fail_at=fail_at, max_model_len=60)
    solution = run_steps(
        engine, Budget(tokens=tokens), expansions=expansions, batch=batch, posterior=posterior
    )
    assert solution.usage.tokens <= tokens


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 120),
    fail_at=st.none() | st.integers(0, 60),
    expansions=st.integers(1, 15),
    batch=st.integers(1, 5),
)
def test_budget_and_books_of_answers_hold_whatever_fails(
    tokens: int, fail_at: int | None, expansions: int, batch: int
) -> None:
    engine = answers(fail_at=fail_at)
    strategy = AbMcts(expansions=expansions, batch=batch)
    solution = solve(engine, strategy, Budget(tokens=tokens), verifier=AnswerVerifier())
    assert solution.usage.tokens <= tokens
    assert solution.graph.tokens_spent == solution.usage.tokens
    assert engine.live_sequences == 0
    if tokens >= 20 and fail_at is None:
        assert solution.answer is not None
