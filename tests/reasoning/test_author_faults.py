"""Mistakes of strategy and verifier authors: one clear error, nothing lost, no figure wrong."""

import math
from typing import Any

import anyio
import pytest
from branchwise import solve as solve_alone
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.events import BranchOpened, Ended, Event, Offered, Pruned, Scored, StepDone, Wrote
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.verifiers.base import Candidate, Score
from branchwise.verifiers.worker import WorkerFailed, WorkerTimeout
from support.searching import DigitVerifier, Samples, outside_engine, scripted, solve, uneven

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
def test_a_score_outside_the_contract_cannot_tell_and_is_named_once(
    score: object, reproducible: bool
) -> None:
    engine = scripted(pace=uneven)
    solution = solve(engine, Samples(n=4), verifier=Returns(score), reproducible=reproducible)
    assert solution.reason is Reason.EXHAUSTED
    assert {candidate.score for candidate in solution.candidates} == {None}
    assert solution.verified is None
    [note] = solution.notes
    assert note.startswith("verifier digit failed: it returned")
    assert engine.live_sequences == 0
    consistent(solution)


class Raises(DigitVerifier):
    """Sound where it can tell; fails on some candidates as it is told to."""

    def __init__(self, error: Exception, *, on: str) -> None:
        super().__init__("7")
        self.error = error
        self.on = on

    async def score(self, candidate: Candidate) -> Score:
        if candidate.branch in self.on.split():
            raise self.error
        return await super().score(candidate)


@both_orders
@pytest.mark.parametrize(
    "error",
    [
        ValueError("two\nlines"),
        WorkerTimeout("no answer within 5 s"),
        WorkerFailed("the worker process died", "died"),
        ZeroDivisionError(),
        UsageError("not here"),
        ExceptionGroup("several", [OSError("one")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_verifier_that_raises_cannot_tell_and_the_others_are_scored(
    error: Exception, reproducible: bool
) -> None:
    engine = scripted(pace=uneven)
    verifier = Raises(error, on="0.1 0.3")
    solution = solve(engine, Samples(n=8), verifier=verifier, reproducible=reproducible)
    scores = {candidate.id: candidate.score for candidate in solution.candidates}
    assert len(scores) == 8 or solution.reason is Reason.SOLVED
    assert {scores[name] for name in ("0.1", "0.3") if name in scores} <= {None}
    assert None not in {score for name, score in scores.items() if name not in ("0.1", "0.3")}
    [note] = solution.notes
    assert note.startswith(f"verifier digit failed: {type(error).__name__}")
    assert "\n" not in note
    assert solution.error is None
    consistent(solution)


def test_a_verifier_that_always_raises_leaves_the_vote() -> None:
    verifier = Raises(RuntimeError("down"), on="0.0 0.1 0.2")
    solution = solve(scripted(), Samples(n=3), verifier=verifier)
    assert solution.answer is not None
    assert (solution.score, solution.verified, solution.reason) == (None, None, Reason.EXHAUSTED)


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


@both_orders
@pytest.mark.parametrize("fails_on", [BranchOpened, StepDone, Scored, Offered, Pruned, Ended, Wrote])
def test_a_watcher_that_fails_costs_the_search_nothing(fails_on: type[Event], reproducible: bool) -> None:
    def watch(event: Event) -> None:
        if isinstance(event, fails_on):
            failed.append(event)
            raise RuntimeError("the watcher's own")

    def run(**options: Any) -> Solution:
        engine = scripted(pace=uneven)
        found = solve(engine, Samples(n=4), verifier=DigitVerifier("x"), reproducible=reproducible, **options)
        assert engine.live_sequences == 0
        consistent(found)
        return found

    failed: list[Event] = []
    solution = run(on_event=watch, deltas=True)
    assert failed
    assert solution.error is None
    # The last event comes when the solution is made.
    assert solution.notes == (() if fails_on is Ended else ("on_event failed: the watcher's own",))
    assert solution.reason is Reason.EXHAUSTED
    assert len(solution.candidates) == 4
    if reproducible:
        assert outside_engine(solution) | {"notes": []} == outside_engine(run()) | {"notes": []}


@pytest.mark.parametrize("max_tokens", [0, -3])
def test_a_longest_candidate_without_a_token_is_refused_before_anything_runs(max_tokens: int) -> None:
    engine = scripted()
    with pytest.raises(UsageError, match=rf"^option max_tokens={max_tokens}: give a number above 0"):
        solve(engine, Samples(n=2), max_tokens=max_tokens)
    assert engine.tokens_sampled == 0


@pytest.mark.parametrize("budget", ["tokens=200", 200, {"tokens": 200}])
def test_what_is_no_budget_is_refused_in_one_line(budget: Any) -> None:
    with pytest.raises(UsageError, match=r"^budget .*: give a Budget, such as Budget\(tokens=4096\)$"):
        solve(scripted(), Samples(n=2), budget)
