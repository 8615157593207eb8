"""The portfolio runs its members side by side and stops the losers, with the reason in its trace."""

from collections.abc import Callable

import anyio
import pytest
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Search, Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.greedy import Greedy
from branchwise.strategies.portfolio import Portfolio
from branchwise.verifiers.base import Candidate, Score
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine, following
from support.searching import (
    PROMPT_LENGTH,
    DigitVerifier,
    outside_engine,
    search,
    solve,
    solve_until_deadline,
    uneven,
    writer,
)


class Member(Strategy, tag="member", kw_only=True, frozen=True):
    """Offers `offers` samples one after the other, then fails or goes on thinking."""

    offers: int = 1
    then: str = "ends"

    async def run(self, search: Search) -> None:
        for branch in search.root.fork(self.offers):
            await branch.extend(Until.ANSWER)
            await branch.evaluate()
            search.offer(branch)
        if self.then == "fails":
            raise RuntimeError("a member's fault")
        while self.then == "thinks":
            (branch,) = search.root.fork(1)
            await branch.extend(Until.THINK)
            if search.budget.spent:
                break
            branch.prune("thought in vain")


class Graded(DigitVerifier):
    """Not sound: the answer over nine."""

    sound = False
    name = "graded"

    def __init__(self) -> None:
        super().__init__("")

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=None if candidate.answer is None else int(candidate.answer) / 9)


def engine(plan: Callable[[str, int], str] = writer) -> ScriptedEngine:
    return ScriptedEngine({"policy": following(plan, PROMPT_LENGTH)}, pace=uneven)


def told(solution: Solution) -> str:
    return " / ".join(solution.notes)


def test_each_member_gives_one_candidate():
    solution = solve(engine(), Portfolio(members=(Member(offers=3), Member(offers=2)), quorum=9, margin=None))
    assert [candidate.id.count(".") for candidate in solution.candidates] == [2, 2]
    assert solution.reason is Reason.EXHAUSTED


def test_a_sound_pass_of_one_stops_all():
    run = engine(lambda prompt, seed: "ab;|3$")
    members = (Member(then="thinks"), Member())
    solution = solve(run, Portfolio(members=members), verifier=DigitVerifier("3"))
    assert (solution.reason, solution.answer) == (Reason.SOLVED, "3")
    assert run.live_sequences == 0


def test_agreeing_members_end_the_race_and_the_rest_is_pruned():
    run = engine(lambda prompt, seed: "ab;|5$")
    members = (Member(), Member(), Member(then="thinks"))
    solution = solve(run, Portfolio(members=members, margin=None), Budget(tokens=2000))
    assert "2 members agree on 5" in told(solution)
    assert solution.answer == "5"
    assert solution.usage.tokens < 1000
    assert all(node.state is not NodeState.LIVE for node in solution.graph.nodes() if node.kind == "step")


def test_a_member_far_below_a_finished_one_is_stopped_alone():
    def plan(prompt: str, seed: int) -> str:
        return f"ab;|{seed % 9}$"

    members = (Member(then="thinks"), Member(offers=8), Member(offers=20))
    solution = solve(
        engine(plan), Portfolio(members=members, accept=1.0, quorum=9), Budget(tokens=3000), verifier=Graded()
    )
    assert "member (0.0) is beaten" in told(solution)
    assert len(solution.candidates) == 3


class ByLane(DigitVerifier):
    """Not sound: a score for each member, whatever it says."""

    sound = False
    name = "by lane"

    def __init__(self, **scores: float) -> None:
        super().__init__("")
        self.scores = scores

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=self.scores.get("lane" + candidate.branch.split(".")[1]))


def test_a_beaten_member_agrees_with_nobody():
    members = (Member(then="thinks"), Member(offers=3), Member(then="thinks"))
    solution = solve(
        engine(lambda prompt, seed: "ab;|5$"),
        Portfolio(members=members, accept=1.0),
        Budget(tokens=600),
        verifier=ByLane(lane0=0.1, lane1=0.9),
    )
    assert "member (0.0) is beaten" in told(solution)
    (agreed,) = [note for note in solution.graph.notes if "2 members agree" in note["note"]]
    assert agreed["finished"] == ["0.1", "0.2"]


def test_a_score_that_is_good_enough_ends_the_race():
    run = engine(lambda prompt, seed: "ab;|9$")
    members = (Member(then="thinks"), Member())
    solution = solve(run, Portfolio(members=members), Budget(tokens=2000), verifier=Graded())
    assert "accepted with a score of 1.000" in told(solution)
    assert solution.usage.tokens < 1000


def test_a_failing_member_leaves_the_others_and_its_offers():
    solution = solve(
        engine(), Portfolio(members=(Member(then="fails"), Member(offers=2)), quorum=9, margin=None)
    )
    assert len(solution.candidates) == 2
    assert solution.reason is Reason.EXHAUSTED


@settings(max_examples=25)
@given(tokens=st.integers(1, 300), seed=st.integers(0, 50), count=st.integers(1, 4))
def test_members_share_the_budget_and_keep_it(tokens: int, seed: int, count: int):
    members = (Greedy(), BestOfN(n=5), Member(then="thinks"), BestOfN(n=None))[:count]
    run = engine()
    solution = solve(run, Portfolio(members=members), Budget(tokens=tokens), seed=seed)
    assert solution.usage.tokens <= tokens
    assert solution.graph.tokens_spent == solution.usage.tokens
    assert run.live_sequences == 0
    again = solve(
        ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)}),
        Portfolio(members=members),
        Budget(tokens=tokens),
        seed=seed,
    )
    assert outside_engine(again) == outside_engine(solution)


@pytest.mark.parametrize("after", [0.0, 0.02, 0.1])
def test_a_deadline_returns_the_best_of_all_members(after: float):
    members = (Member(), Member(then="thinks"))

    def within(seconds: float) -> Solution:
        budget = Budget(tokens=10**6, seconds=seconds + after)
        return solve(engine(), Portfolio(members=members, margin=None), budget, reproducible=False)

    solution = solve_until_deadline(within)
    assert solution.reason is Reason.DEADLINE
    assert solution.answer is not None


def test_stopping_a_member_waits_for_nothing():
    async def run() -> Solution:
        with anyio.fail_after(10):
            members = (Member(then="thinks"), Member(then="thinks"), Member())
            return await search(
                engine(lambda prompt, seed: "ab;|9$"), Portfolio(members=members), verifier=Graded()
            )

    assert anyio.run(run).answer == "9"


def _rambling(text: str, seed: int) -> str:
    """Steps without end, and an answer once the thinking was ended."""
    _, end, said = text.partition("|")
    return "7$"[len(said) :] if end else "ab;"[len(text) % 3 :]


@pytest.mark.parametrize("inner", [Greedy(), BestOfN(n=2), Portfolio(members=(Greedy(), Greedy()))])
def test_members_cut_in_their_thinking_answer_from_their_part_of_the_reserve(inner: Strategy):
    rambling = ScriptedEngine({"policy": _rambling}, pace=uneven)
    budget = Budget(tokens=60, answer_reserve=24)
    solution = solve(rambling, Portfolio(members=(inner, Greedy())), budget, verifier=Graded())
    assert [candidate.complete for candidate in solution.candidates] == [True, True]
    for lane in ("0.0", "0.1"):
        nodes = [n for n in solution.graph.nodes() if n.branch == lane or n.branch.startswith(f"{lane}.")]
        assert sum(node.tokens_spent for node in nodes) <= 30
    assert solution.usage.tokens <= 60
