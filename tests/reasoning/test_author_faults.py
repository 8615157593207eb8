"""Mistakes of strategy and verifier authors: one clear error, nothing lost, no figure wrong."""

import math

import anyio
import pytest
from branchwise import solve as solve_alone
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.verifiers.base import Candidate, Score
from support.searching import DigitVerifier, Samples, scripted, solve, uneven

both_orders = pytest.mark.parametrize("reproducible", [True, False])


class Returns(DigitVerifier):
    """Returns what it is told to."""

    def __init__(self, score: object) -> None:
        super().__init__("7")
        self.given = score

    async def score(self, candidate: Candidate) -> Score:
        return self.given  # pyright: ignore[reportReturnType]  # the fault under test


class Calls(Strategy, tag="calls", frozen=True, kw_only=True):
    """Offers a whole solution first where `offers`, then makes the mistake."""

    mistake: str
    offers: bool = False

    async def run(self, search: Search) -> None:
        if self.offers:
            branch = search.root.fork(1)[0]
            await branch.extend(Until.ANSWER)
            search.offer(branch)
        match self.mistake:
            case "token":
                await search.root.append([-5])
            case "model":
                await search.root.extend(model="absent")
            case "open":
                await search.open("task", model="absent")


def consistent(solution: Solution) -> None:
    assert solution.graph.tokens_spent == solution.usage.tokens
    assert solution.graph.flops_spent == solution.usage.flops


@both_orders
@pytest.mark.parametrize(
    "score",
    [
        Score(value=math.nan),
        Score(value=2.0),
        Score(value=-0.1),
        Score(value=math.inf, verified=True),
        Score(value=0.5, steps=(math.nan,)),
        Score(value="high"),  # pyright: ignore[reportArgumentType]  # the fault under test
        None,
        0.7,
    ],
)
def test_a_score_outside_the_contract_fails_the_search_by_name(score: object, reproducible: bool) -> None:
    engine = scripted(pace=uneven)
    solution = solve(engine, Samples(n=4), verifier=Returns(score), reproducible=reproducible)
    assert solution.reason is Reason.FAILED
    assert "verifier 'digit' returned" in (solution.error or "")
    assert engine.live_sequences == 0
    consistent(solution)


@both_orders
@pytest.mark.parametrize(
    ("mistake", "kind", "part"),
    [
        ("token", UsageError, "token -5"),
        ("model", CapabilityError, "absent"),
        ("open", CapabilityError, "absent"),
    ],
)
def test_a_wrong_call_says_what_would_be_right(
    mistake: str, kind: type[UsageError], part: str, reproducible: bool
) -> None:
    engine = scripted()
    with pytest.raises(kind, match=part):
        solve(engine, Calls(mistake=mistake), reproducible=reproducible)
    assert engine.live_sequences == 0


@both_orders
def test_a_wrong_call_loses_no_candidate(reproducible: bool) -> None:
    solution = solve(scripted(), Calls(mistake="model", offers=True), reproducible=reproducible)
    assert solution.reason is Reason.FAILED
    assert solution.answer is not None
    assert "absent" in (solution.error or "")
    consistent(solution)


class LeavesAtOnce(Strategy, tag="leaves_at_once", frozen=True):
    async def run(self, search: Search) -> None:
        async def finish(branch: Branch) -> None:
            await branch.extend(Until.ANSWER)

        async with search.each(search.root.fork(4), finish):
            pass


@both_orders
def test_leaving_a_block_before_it_began_is_no_failure(reproducible: bool) -> None:
    solution = solve(scripted(), LeavesAtOnce(), reproducible=reproducible)
    assert (solution.reason, solution.error) == (Reason.EXHAUSTED, None)


class NotesAnything(Strategy, tag="notes_anything", frozen=True):
    async def run(self, search: Search) -> None:
        search.note("seen", value=math.nan, kind=Branch, raw={1, 2})


def test_whatever_is_noted_the_graph_can_be_written() -> None:
    solution = solve(scripted(), NotesAnything())
    assert '"value": null' in solution.graph.render(".json")


def test_solving_alone_inside_an_event_loop_names_the_way() -> None:
    async def run() -> None:
        solve_alone("Use 3 and 4 to make 7")

    with pytest.raises(UsageError, match=r"await Reasoner\.solve"):
        anyio.run(run)
