"""`mcts` on the real orchestrator: what it selects, expands, backs up and offers."""

from typing import Any

import msgspec
import pytest
from branchwise.engine.errors import CapabilityError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.mcts import Evaluation, Mcts, Prior, SelectionRule
from branchwise.strategies.mcts_tree import Backup
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, DigitVerifier, outside_engine, solve, uneven, writer
from support.trees import TreeEngine, planted, reasons, wandering

TWO_LEVELS = {
    "0.0": "a2;",
    "0.1": "b9;",
    "0.1.0": "c3;",
    "0.1.1": "|7$",
    "0.0.0": "d6;",
    "0.0.1": "e1;",
    "0.1.0.0": "|4$",
    "0.1.0.1": "|5$",
}


def simulated(solution: Solution) -> list[tuple[str, float]]:
    """(leaf, value) of each simulation, in turn."""
    return [
        (note["leaf"], note["value"]) for note in solution.graph.notes if note["note"] == "mcts: simulated"
    ]


def run(engine: TreeEngine, strategy: Mcts, budget: Budget | None = None, **options: Any) -> Solution:
    options.setdefault("verifier", "prm")
    solution = solve(engine, strategy, budget, **options)
    assert not engine.broken
    assert engine.live_sequences == 0
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_paid
    assert solution.graph.flops_spent == solution.usage.flops
    return solution


def test_puct_goes_where_the_steps_score_high():
    """Both children are as likely: the first is simulated, then the other; .9 beats .2 from there on."""
    solution = run(planted(TWO_LEVELS), Mcts(rollouts=5, width=2))
    assert simulated(solution) == [
        ("0.0", 0.2),
        ("0.1", 0.9),
        ("0.1.0", 0.3),
        ("0.1.1", 0.9),
        ("0.1.0.0", 0.3),
    ]


def test_what_is_noted_at_each_simulation_is_told_once():
    solution = run(planted(TWO_LEVELS), Mcts(rollouts=5, width=2))
    assert solution.notes.count("mcts: simulated") == 1
    assert len(simulated(solution)) == 5


def test_uct_visits_every_child_first():
    solution = run(planted(TWO_LEVELS), Mcts(rollouts=4, width=2, rule=SelectionRule.UCT, w=0.0))
    assert [leaf for leaf, _ in simulated(solution)] == ["0.0", "0.1", "0.1.0", "0.1.1"]


def test_a_finished_path_is_offered_once_keeps_its_value_and_is_not_extended():
    """0.1.1 answers at its first visit; with w=0 it would be the best child for ever."""
    solution = run(planted(TWO_LEVELS), Mcts(rollouts=30, width=2, rule=SelectionRule.UCT, w=0.0))
    visits = [leaf for leaf, _ in simulated(solution)]
    assert visits.count("0.1.1") == 1
    assert len([candidate for candidate in solution.candidates if candidate.id == "0.1.1"]) == 1
    assert next(c for c in solution.candidates if c.id == "0.1.1").score == 0.9
    assert len(visits) == len(set(visits)), "no leaf is simulated twice"


def test_a_tree_that_is_explored_ends_the_search():
    engine = planted({"0.0": "|3$", "0.1": "|4$", "0.2": "|3$"})
    solution = run(engine, Mcts(rollouts=1000, width=3, dedup=False))
    assert [candidate.answer for candidate in solution.candidates] == ["3", "4"], "equal paths vote once"
    assert "mcts: the whole tree is explored" in solution.notes
    assert solution.reason is Reason.EXHAUSTED


def test_max_back_up_stays_with_the_best_child():
    """Behind .9 comes .1: the mean leaves that subtree for the other, the best does not."""
    steps = {"0.0": "a9;", "0.1": "b6;", "0.0.0": "c1;", "0.0.1": "d1;", "0.1.0": "e6;", "0.1.1": "f6;"}
    strategy = Mcts(rollouts=5, width=2, rule=SelectionRule.UCT, w=0.01)
    assert [leaf for leaf, _ in simulated(run(planted(steps), strategy))][2:] == ["0.0.0", "0.1.0", "0.1.1"]
    best = Mcts(rollouts=5, width=2, rule=SelectionRule.UCT, w=0.01, backup=Backup.MAX)
    assert [leaf for leaf, _ in simulated(run(planted(steps), best))][2:4] == ["0.0.0", "0.0.1"]


def test_the_discount_reaches_the_selection():
    """.9 found two edges down is worth .45 one up at a discount of .5: less than the .6 beside it."""
    steps = {"0.0": "a6;", "0.1": "b5;", "0.0.0": "c9;", "0.0.1": "d9;", "0.1.0": "e5;", "0.1.1": "f5;"}
    plain = Mcts(rollouts=4, width=2, rule=SelectionRule.UCT, w=0.0, backup=Backup.MEAN)
    assert [leaf for leaf, _ in simulated(run(planted(steps), plain))][3] == "0.0.1"
    short = Mcts(rollouts=4, width=2, rule=SelectionRule.UCT, w=0.0, discount=0.2)
    assert [leaf for leaf, _ in simulated(run(planted(steps), short))][3] == "0.1.0"


def test_rollouts_evaluate_by_the_last_check_and_need_no_step_scores():
    """No step verifier; a leaf is worth what its rollout answers."""
    engine = planted({"0.0": "a1;", "0.1": "b1;", "0.0.0": "|5$", "0.1.0": "|7$"})
    solution = solve(
        engine,
        Mcts(rollouts=2, width=2, evaluate=Evaluation.ROLLOUT, stop_on_verified=False),
        verifier=DigitVerifier("7"),
    )
    assert simulated(solution) == [("0.0", 0.0), ("0.1", 1.0)]
    assert [candidate.id for candidate in solution.candidates] == ["0.0.0", "0.1.0"]
    assert (solution.answer, solution.verified) == ("7", True)
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_paid
    assert not engine.broken


def test_a_sound_pass_ends_the_search():
    engine = planted({"0.0": "a1;", "0.1": "b1;", "0.0.0": "|7$"})
    solution = solve(
        engine, Mcts(rollouts=50, width=2, evaluate=Evaluation.ROLLOUT), verifier=DigitVerifier("7")
    )
    assert (solution.reason, len(solution.candidates)) == (Reason.SOLVED, 1)


def test_parallel_simulations_spread_and_the_speed_does_not_matter():
    slow, fast = (
        run(wandering(pace=pace), Mcts(rollouts=24, width=3, parallel=6), Budget(tokens=900))
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)
    leaves = [leaf for leaf, _ in simulated(slow)]
    assert len(leaves) == len(set(leaves))


def test_with_nothing_finished_the_most_visited_path_answers():
    engine = wandering(steps=30)
    solution = run(engine, Mcts(rollouts=4, width=2), Budget(tokens=2000))
    (candidate,) = solution.candidates
    assert candidate.complete
    assert solution.answer == candidate.answer


def test_what_is_explored_gives_its_kv_back():
    engine = planted({"0.0": "a5;", "0.0.0": "|1$", "0.0.1": "|2$", "0.1": "|3$"})
    solution = run(engine, Mcts(rollouts=10, width=2))
    assert reasons(solution, "no child left") == {"0.0"}


def test_it_needs_step_scores_unless_it_rolls_out():
    plain = ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)})
    with pytest.raises(CapabilityError, match="strategy mcts needs a verifier"):
        solve(plain, Mcts())
    with pytest.raises(CapabilityError, match="single steps"):
        solve(plain, Mcts(), verifier=DigitVerifier("7"))


@pytest.mark.parametrize("prior", Prior)
def test_priors_of_equal_steps_are_equal(prior: Prior) -> None:
    solution = run(planted(TWO_LEVELS), Mcts(rollouts=2, width=2, prior=prior))
    assert [leaf for leaf, _ in simulated(solution)] == ["0.0", "0.1"]


LAST_FAILS = Mcts(rollouts=6, width=3, rule=SelectionRule.UCT, dedup=False)
"""With 66 tokens and a failure at 58 the path that answers at the end is the one that fails."""


@settings(max_examples=40, deadline=None)
@example(tokens=66, fail_at=58, strategy=LAST_FAILS)
@given(
    tokens=st.integers(1, 250),
    fail_at=st.none() | st.integers(0, 120),
    strategy=st.builds(
        Mcts,
        rollouts=st.integers(1, 20),
        width=st.integers(1, 5),
        rule=st.sampled_from(SelectionRule),
        evaluate=st.sampled_from(Evaluation),
        backup=st.sampled_from(Backup),
        parallel=st.integers(1, 4),
        dedup=st.booleans(),
    ),
)
def test_budget_and_books_hold_whatever_fails(tokens: int, fail_at: int | None, strategy: Mcts) -> None:
    engine = wandering(fail_at=fail_at, max_model_len=60)
    solution = run(engine, strategy, Budget(tokens=tokens))
    assert solution.usage.tokens <= tokens
    if tokens > 60:
        assert solution.candidates


def test_a_rule_may_be_given_as_text():
    as_text = msgspec.convert({"type": "mcts", "rule": "puct", "rollouts": 5, "width": 2}, Mcts)
    assert simulated(run(planted(TWO_LEVELS), as_text)) == simulated(
        run(planted(TWO_LEVELS), Mcts(rollouts=5, width=2, rule="puct"))  # pyright: ignore[reportArgumentType]
    )
