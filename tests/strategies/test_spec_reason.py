"""`spec_reason`: a draft writes, a score decides, a rejected step is rewritten, and all of it is paid for."""

import anyio
import pytest
from branchwise.engine.errors import CapabilityError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.spec_reason import SpecReason
from branchwise.verifiers.base import Candidate, Score
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import PLAIN, ScriptedEngine
from support.searching import outside_engine, search, solve, uneven
from support.stepping import drafting, writes


def noted(solution: Solution) -> dict:
    """The strategy's account of its drafts."""
    return next(note for note in solution.graph.notes if note["note"].startswith("drafts:"))


class HalfSure:
    """A step verifier of 0.5 that has nothing to do with a model."""

    name = "half"
    sound = False
    oracle = False
    step_scores = True
    models: tuple[str, ...] = ()

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=0.5)


class Silent(HalfSure):
    name = "silent"

    async def score(self, candidate: Candidate) -> Score:
        return Score(detail="cannot tell")


def test_accepted_steps_are_the_drafts_and_rejected_ones_the_policys():
    run = drafting("axbx", "pppp")
    solution = solve(run, SpecReason())
    assert (solution.text, solution.answer) == ("aa;pp;bb;pp;|9$", "9")
    # Two rejected steps of 3 tokens and the draft's end of thinking were paid for, and stand in the graph.
    assert solution.usage.discarded_tokens == 7
    assert solution.usage.tokens == len(solution.text) + 7 == run.tokens_sampled
    dropped = [node for node in solution.graph.nodes() if node.reason == "truncated"]
    assert [node.text for node in dropped] == ["xx;", "xx;", "|"]
    assert all(node.state is NodeState.PRUNED for node in dropped)
    assert run.live_sequences == 0


def test_the_note_tells_who_wrote_each_step_and_with_what_score():
    note = noted(solve(drafting("axbx", "pppp"), SpecReason()))
    assert note["note"] == "drafts: 2 accepted, 3 rejected"
    assert note["written"] == ["draft", "policy", "draft", "policy", "policy"]
    assert [(draft["score"], draft["accepted"]) for draft in note["drafts"]] == [
        (0.9, True),
        (0.1, False),
        (0.9, True),
        (0.1, False),
        (None, False),  # the end of thinking of a model whose steps have a mark is not scored
    ]


def test_every_drafted_step_is_scored_once():
    solution = solve(drafting("axbx", "pppp"), SpecReason())
    scored = {node.text: node.scores["prm"] for node in solution.graph.nodes() if "prm" in node.scores}
    assert scored["xx;"] == 0.1
    assert scored["aa;"] == scored["bb;"] == 0.9


@pytest.mark.parametrize(("accept", "text"), [(0.9, "aa;pp;|9$"), (0.91, "pp;pp;|9$"), (0.0, "aa;xx;|9$")])
def test_a_score_at_the_threshold_is_accepted(accept: float, text: str):
    assert solve(drafting("ax", "pp"), SpecReason(accept=accept)).text == text


def test_the_first_steps_are_the_policys_and_cost_no_draft():
    solution = solve(drafting("aaa", "ppp"), SpecReason(first_n=2))
    assert solution.text == "pp;pp;aa;|9$"
    assert noted(solution)["written"] == ["policy", "policy", "draft", "policy"]
    assert solution.usage.discarded_tokens == 1


def test_any_step_verifier_judges_and_one_that_cannot_tell_leaves_it_to_the_policy():
    assert solve(drafting("aa", "pp"), SpecReason(accept=0.5), verifier=HalfSure()).text == "aa;aa;|9$"
    assert solve(drafting("aa", "pp"), SpecReason(accept=0.6), verifier=HalfSure()).text == "pp;pp;|9$"
    assert solve(drafting("aa", "pp"), SpecReason(accept=0.0), verifier=Silent()).text == "pp;pp;|9$"


def test_a_step_too_long_for_its_limit_is_the_policys_in_parts():
    solution = solve(drafting("aa", "pp"), SpecReason(step_tokens=2))
    assert solution.text.startswith("pp;")
    assert solution.answer == "9"


@pytest.mark.parametrize("patience", [2, 4])
def test_steps_that_repeat_end_the_chain(patience: int):
    solution = solve(drafting("a" * 50, "p" * 50), SpecReason(patience=patience))
    assert solution.text == "aa;" * (1 + patience) + "|9$"


def test_the_chain_ends_after_its_last_step():
    text = "abcdefgh"
    assert solve(drafting(text, text), SpecReason(max_steps=3)).text == "aa;bb;cc;|9$"


def test_a_model_without_thinking_is_drafted_to_its_end():
    def script(text: str, seed: int) -> str:
        said = text.removeprefix("Qtask:")
        return "aa;9$"[len(said) :] or "$"

    run = ScriptedEngine(
        {"policy": script, "draft": script}, rewards={"prm": lambda text: 0.9}, profile=PLAIN
    )
    solution = solve(run, SpecReason())
    assert solution.text == "aa;9$"
    assert noted(solution)["written"] == ["draft", "policy"]


def test_it_names_what_it_needs():
    lonely = ScriptedEngine({"policy": writes("a")}, rewards={"prm": lambda text: 0.5})
    with pytest.raises(CapabilityError, match="needs the model 'draft': give --draft"):
        solve(lonely, SpecReason())
    unjudged = ScriptedEngine({"policy": writes("a"), "draft": writes("a")})
    with pytest.raises(CapabilityError, match="needs a verifier: give --verifier, or a reward model"):
        solve(unjudged, SpecReason())


def test_it_says_that_it_is_not_lossless():
    assert not SpecReason().is_lossless()
    assert any("not lossless" in note for note in solve(drafting("a", "p"), SpecReason()).notes)


@settings(max_examples=20, deadline=None)
@given(
    draft=st.text("abx", min_size=1, max_size=8),
    policy=st.text("pqx", min_size=8, max_size=8),
    tokens=st.none() | st.integers(1, 60),
    flops=st.none() | st.integers(1, 300_000),
    fail_at=st.none() | st.integers(0, 40),
    reproducible=st.booleans(),
)
def test_the_books_balance_whatever_ends_it(draft, policy, tokens, flops, fail_at, reproducible):
    run = drafting(draft, policy, fail_at=fail_at, pace=uneven)
    budget = Budget(tokens=tokens, flops=flops)
    solution = solve(run, SpecReason(), budget, reproducible=reproducible)
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.graph.tokens_spent == solution.usage.tokens == run.tokens_sampled + forced
    assert solution.graph.flops_spent == solution.usage.flops
    assert tokens is None or solution.usage.tokens <= tokens
    assert flops is None or solution.usage.flops <= flops
    assert run.live_sequences == 0
    if solution.reason is Reason.EXHAUSTED:
        assert solution.answer == "9"
    if solution.reason is Reason.FAILED:
        assert "injected" in str(solution.error)


@pytest.mark.parametrize("tokens", [9, 14, 20, 30])
def test_a_spent_budget_still_answers_from_the_reserve(tokens: int):
    solution = solve(drafting("x" * 30, "pq" * 15), SpecReason(), Budget(tokens=tokens, answer_reserve=3))
    assert solution.answer == "9"
    assert solution.reason is Reason.BUDGET
    assert solution.usage.tokens <= tokens


@settings(max_examples=15, deadline=None)
@given(turns=st.integers(0, 60))
def test_cancelling_anywhere_leaks_nothing(turns: int):
    run = drafting("axbx", "pppp", pace=uneven)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(search, run, SpecReason())
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
    assert run.live_sequences == 0


def test_one_seed_is_one_solution_at_any_speed():
    slow, fast = (
        solve(drafting("axbx", "pppp", pace=pace), SpecReason(), Budget(tokens=25))
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)
