"""`beam` on the real orchestrator: what is kept, pruned and offered, level by level."""

from typing import Any

import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.solution import Reason
from branchwise.strategies.beam import Beam
from branchwise.strategies.tree import shares
from branchwise.verifiers.aggregate import Aggregation
from branchwise.verifiers.reward import RewardVerifier
from branchwise.verifiers.vote import Select
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, DigitVerifier, outside_engine, solve, uneven, writer
from support.trees import Unsure, planted, reasons, wandering

TREE = {
    "0.0": "a3;",
    "0.1": "a9;",
    "0.2": "a5;",
    "0.3": "a8;",
    "0.1.0": "b2;",
    "0.1.1": "b6;",
    "0.3.0": "b7;",
    "0.3.1": "|4$",
    "0.3.0.0": "|7$",
    "0.3.0.1": "c1;",
    "0.1.1.0": "c0;",
    "0.1.1.1": "|7$",
    "0.3.0.1.0": "|1$",
    "0.3.0.1.1": "d9;",
    "0.1.1.0.0": "|2$",
    "0.1.1.0.1": "|3$",
}


def test_it_keeps_the_best_of_each_level_and_goes_on_from_them():
    solution = solve(planted(TREE), Beam(n=4, width=2), verifier="prm")
    kept = [note["kept"] for note in solution.graph.notes if "kept" in note]
    assert kept == [["0.1", "0.3"], ["0.3.0", "0.1.1"], ["0.3.0.1", "0.1.1.0"]]
    assert reasons(solution, "not among the best 2") == {"0.0", "0.2", "0.1.0"}
    assert solution.reason is Reason.EXHAUSTED
    assert solution.answer == "7"


@pytest.mark.pins("search-and-learn score.py")
@pytest.mark.parametrize(
    ("rule", "kept"), [(Aggregation.LAST, ["0.1.1", "0.1.0"]), (Aggregation.MIN, ["0.0.0", "0.0.1"])]
)
def test_the_verifiers_aggregation_of_step_scores_decides(rule: Aggregation, kept: list[str]):
    tops = {"0.0": "a9;", "0.1": "a2;", "0.2": "a1;", "0.3": "b1;"}
    below = {"0.0.0": "b5;", "0.0.1": "b4;", "0.1.0": "b6;", "0.1.1": "b7;"}
    solution = solve(planted(tops | below), Beam(n=4, width=2), verifier=RewardVerifier(rule))
    assert solution.graph.notes[1]["kept"] == kept


def test_the_answer_is_chosen_by_the_rule_that_was_asked_for():
    tops = {"0.0": "a3;", "0.1": "a9;", "0.2": "a4;"}
    ends = {"0.0.0": "|7$", "0.1.0": "|8$", "0.2.0": "|7$"}
    answers = {
        rule: solve(planted(tops | ends), Beam(n=3, width=1, select=rule), verifier="prm").answer
        for rule in (Select.MAX_SCORE, Select.MAJORITY, Select.WEIGHTED_VOTE)
    }
    assert answers == {Select.MAX_SCORE: "8", Select.MAJORITY: "7", Select.WEIGHTED_VOTE: "8"}


def test_finished_beams_leave_the_front_and_n_of_them_end_the_search():
    solution = solve(planted(TREE), Beam(n=4, width=2), verifier="prm")
    finished = ["0.1.1.0.0", "0.1.1.1", "0.3.0.0", "0.3.0.1.0", "0.3.1"]
    assert sorted(candidate.id for candidate in solution.candidates) == finished
    assert reasons(solution, "4 beams have finished") == {"0.3.0.1.1"}


def test_siblings_that_end_thinking_alike_are_merged_before_the_answer_is_paid_for():
    solution = solve(planted(TREE), Beam(n=4, width=2), verifier="prm")
    assert reasons(solution, "duplicate of 0.1.1.0.0") == {"0.1.1.0.1"}
    spent = {node.branch: node.tokens_spent for node in solution.graph.nodes() if node.text == "|"}
    assert spent["0.1.1.0.1"] == 1
    both = solve(planted(TREE), Beam(n=4, width=2, dedup=False), verifier="prm")
    assert {"0.1.1.0.0", "0.1.1.0.1"} < {candidate.id for candidate in both.candidates}


def test_a_finished_beam_frees_its_place_for_the_others():
    tree = TREE | {"0.0": "|5$", "0.1": "|6$", "0.2": "|5$", "0.3": "a8;", "0.3.2": "b1;", "0.3.3": "b3;"}
    solution = solve(planted(tree), Beam(n=4, width=2, depth=2), verifier="prm")
    below = {node.branch for node in solution.graph.nodes() if node.branch.count(".") == 2}
    assert below == {"0.3.0", "0.3.1", "0.3.2", "0.3.3"}


def test_a_verified_beam_ends_the_search_at_once_unless_told_otherwise():
    first = solve(planted(TREE), Beam(n=4, width=2), verifier=DigitVerifier("4"))
    assert (first.reason, first.answer, first.verified) == (Reason.SOLVED, "4", True)
    assert [candidate.id for candidate in first.candidates] == ["0.3.1"]
    whole = solve(planted(TREE), Beam(n=4, width=2, stop_on_verified=False), verifier=DigitVerifier("4"))
    assert (whole.reason, whole.answer, len(whole.candidates)) == (Reason.SOLVED, "4", 5)


@pytest.mark.pins("its_hub#208", "llm-reasoners#65")
def test_a_refuted_beam_is_no_answer_and_is_never_extended():
    engine = planted(TREE)
    solution = solve(engine, Beam(n=4, width=2), verifier=DigitVerifier("9"))
    assert solution.answer is None
    assert not engine.broken
    assert all(candidate.verified is False for candidate in solution.candidates)


@pytest.mark.pins("llm-reasoners#31")
def test_a_beam_that_finishes_at_the_last_level_keeps_its_answer():
    solution = solve(planted(TREE), Beam(n=4, width=2, depth=2), verifier="prm")
    own = {candidate.id: candidate for candidate in solution.candidates}
    assert own["0.3.1"].answer == "4"
    assert {"0.3.0", "0.1.1"} < set(own)
    assert all(candidate.complete for candidate in own.values())


@pytest.mark.pins("its_hub step_generation.py", "its_hub beam_search.py")
@pytest.mark.parametrize(("n", "width"), [(1, 1), (1, 4), (3, 2), (5, 4), (6, 4), (7, 3), (4, 9)])
def test_any_n_and_width_fill_the_front(n: int, width: int):
    engine = wandering(letters="abcdefgh", steps=9)
    solution = solve(engine, Beam(n=n, width=width, depth=3, dedup=False), verifier="prm")
    kept = [len(note["kept"]) for note in solution.graph.notes if "kept" in note]
    assert kept == [-(-n // width)] * 3
    levels = [0, 0, 0, 0]
    for branch in {node.branch for node in solution.graph.nodes() if node.kind == "step"}:
        levels[branch.count(".")] += 1
    assert levels[1:] == [n, n, n]


def test_places_are_dealt_to_the_better_beams_first():
    assert shares(16, 3) == [6, 5, 5]
    assert shares(4, 4) == [1, 1, 1, 1]


def test_lookahead_decides_and_is_charged_and_thrown_away():
    tree = {"0.0": "a9;", "0.1": "a2;", "0.0.0": "a1;", "0.1.0": "a8;", "0.1.1": "|5$", "0.1.2": "|5$"}
    engine = planted(tree)
    solution = solve(engine, Beam(n=2, width=2, lookahead=1, depth=2), verifier="prm")
    assert solution.graph.notes[0]["kept"] == ["0.1"]
    assert reasons(solution, "lookahead") == {"0.0.0", "0.1.0"}
    assert {candidate.id for candidate in solution.candidates} == {"0.1.1"}
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_paid
    assert not engine.broken


@pytest.mark.pins("search-and-learn beam_search.py")
@pytest.mark.parametrize("dedup", [True, False])
def test_beams_of_the_same_tokens_vote_once(dedup: bool):
    tops = {"0.0": "a5;", "0.1": "a5;", "0.2": "a6;", "0.3": "a5;"}
    ends = {f"{top}.{i}": "|8$" if top == "0.2" else "|7$" for top in tops for i in range(2)}
    strategy = Beam(n=4, width=1, dedup=dedup, select=Select.MAJORITY)
    solution = solve(planted(tops | ends), strategy, verifier="prm")
    assert [(c.id, c.answer) for c in solution.candidates] == [("0.0.0", "7"), ("0.2.0", "8")]
    assert reasons(solution, "duplicate of 0.0") == ({"0.1", "0.3"} if dedup else set())
    twice = {"0.0.1"} if dedup else {"0.1.0", "0.3.0"}
    assert reasons(solution, "duplicate of 0.0.0") == twice


def test_beams_without_a_score_come_last():
    tree = {"0.0": "a9;", "0.1": "b1;", "0.2": "a9;", "0.3": "a8;", "0.1.0": "|7$"}
    solution = solve(planted(tree), Beam(n=4, width=4), verifier=Unsure("a"))
    assert solution.graph.notes[0]["kept"] == ["0.1"]
    assert "0.1.0" in {candidate.id for candidate in solution.candidates}


def test_a_search_without_any_score_still_answers():
    solution = solve(planted({"0.0": "a9;", "0.1": "b1;"}), Beam(n=2, width=2, depth=1), verifier=Unsure(""))
    assert [(candidate.id, candidate.answer) for candidate in solution.candidates] == [("0.0", "0")]


def test_it_needs_step_scores():
    with pytest.raises(CapabilityError, match="strategy beam needs a verifier"):
        solve(ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)}), Beam())
    with pytest.raises(CapabilityError, match="strategy beam needs scores of single steps"):
        solve(
            ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)}), Beam(), verifier=DigitVerifier("1")
        )


@pytest.mark.parametrize("wrong", [{"n": 0}, {"width": 0}, {"depth": 0}, {"lookahead": -1}])
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]):
    with pytest.raises(UsageError, match="strategy beam: "):
        Beam(**wrong)


@pytest.mark.parametrize("tokens", [1, 9, 30, 77, 200])
def test_the_budget_holds_and_the_speed_does_not_matter(tokens: int):
    slow, fast = (
        solve(wandering(pace=pace), Beam(), Budget(tokens=tokens), verifier="prm")
        for pace in (uneven, lambda seed, position: 0)
    )
    assert slow.usage.tokens <= tokens
    assert outside_engine(slow) == outside_engine(fast)


def test_pruned_beams_stay_in_the_graph():
    solution = solve(planted(TREE), Beam(n=4, width=2), verifier="prm")
    lost = [node for node in solution.graph.nodes() if node.reason == "not among the best 2"]
    assert all(node.state is NodeState.PRUNED and "prm" in node.scores for node in lost)
