"""A nested strategy in a scope of the search: its offers compete there, its best goes outward, whatever ended
it."""

from typing import Annotated

import anyio
import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Needs, Search, Strategy
from branchwise.strategies.grammar import format_strategy, parse_strategy
from msgspec import Meta
from support.scripted import ScriptedEngine
from support.searching import (
    DigitVerifier,
    Samples,
    outside_engine,
    scripted,
    solve,
    solve_until_deadline,
    uneven,
)


class Nested(Strategy, tag="nested", kw_only=True, frozen=True):
    """Run `inner` in a scope on each of `n` forks."""

    n: Annotated[int, Meta(ge=1)] = 3
    inner: Strategy = Samples(n=4)
    stop: bool = True

    async def run(self, search: Search) -> None:
        async def one(branch: Branch) -> None:
            async with search.scope(branch, self.inner) as inside:
                assert inside.root is branch
                await self.inner.run(inside)

        async with search.each(search.root.fork(self.n), one) as done:
            async for _ in done:
                continue

    def stops_on_verified(self) -> bool:
        return self.stop


class Stumbles(Samples, tag="stumbles", kw_only=True, frozen=True):
    """Offers its samples, then fails or sleeps."""

    fails: bool = True

    async def run(self, search: Search) -> None:
        await Samples.run(self, search)
        if self.fails:
            raise RuntimeError("after the offers")
        await anyio.sleep_forever()


class Wide(Strategy, tag="wide", kw_only=True, frozen=True):
    """Runs `members` one after the other."""

    members: Annotated[tuple[Strategy, ...], Meta(min_length=1)] = (Samples(n=2),)

    async def run(self, search: Search) -> None:
        for member in self.members:
            (branch,) = search.root.fork(1)
            async with search.scope(branch, member) as inside:
                await member.run(inside)


def test_each_scope_hands_out_its_own_winner_only():
    solution = solve(scripted(pace=uneven), Nested(n=3, inner=Samples(n=5)))
    assert len(solution.candidates) == 3
    assert [candidate.id.split(".")[1] for candidate in solution.candidates] == ["0", "1", "2"]
    assert solution.graph.tokens_spent == solution.usage.tokens


@pytest.mark.parametrize("fails", [True, False])
def test_what_a_scope_offered_survives_its_failure_and_a_cancellation(fails: bool):
    def within(seconds: float) -> Solution:
        budget = Budget(tokens=10_000, seconds=None if fails else seconds)
        return solve(scripted(), Nested(n=2, inner=Stumbles(n=3, fails=fails)), budget, reproducible=False)

    solution = solve_until_deadline(within)
    assert solution.answer is not None
    assert len(solution.candidates) == 2
    assert solution.reason is (Reason.EXHAUSTED if fails else Reason.DEADLINE)


def test_a_sound_pass_ends_the_inner_search_and_then_the_outer_one():
    solution = solve(scripted(), Nested(n=2, inner=Samples(n=30)), verifier=DigitVerifier("3"))
    assert (solution.answer, solution.reason) == ("3", Reason.SOLVED)


def test_a_sound_pass_ends_the_inner_search_only_where_the_outer_goes_on():
    solution = solve(scripted(), Nested(n=3, inner=Samples(n=90), stop=False), verifier=DigitVerifier("3"))
    assert [candidate.answer for candidate in solution.candidates] == ["3", "3", "3"]
    assert solution.reason is Reason.SOLVED


class _Draws(Strategy, tag="draws", kw_only=True, frozen=True):
    needs = Needs(models=("draft",), capabilities=("token_stats",))
    lossless = False

    async def run(self, search: Search) -> None:
        await search.root.extend(Until.ANSWER)


def test_needs_of_nested_strategies_count_and_so_does_their_loss():
    outer = Nested(inner=Wide(members=(Samples(), _Draws())))
    assert outer.requirements() == _Draws.needs
    assert not outer.is_lossless()
    assert Nested().is_lossless()
    with pytest.raises(CapabilityError, match="strategy nested needs the model 'draft': give --draft"):
        solve(scripted(), outer)


def test_a_missing_capability_is_named():
    engine = ScriptedEngine({"policy": lambda text, seed: "$", "draft": lambda text, seed: "$"})
    with pytest.raises(CapabilityError, match="needs statistics of each token's distribution"):
        solve(engine, _Draws())


_KNOWN: dict[str, type[Strategy]] = {"wide": Wide, "nested": Nested, "samples": Samples}


@pytest.mark.parametrize("text", ["wide(members=[samples, nested(n=2)])", "wide(members=[samples])", "wide"])
def test_lists_of_strategies_are_read_and_written(text: str):
    strategy = parse_strategy(text, _KNOWN.__getitem__)
    assert isinstance(strategy, Wide)
    assert parse_strategy(format_strategy(strategy), _KNOWN.__getitem__) == strategy


@pytest.mark.parametrize("text", ["wide(members=[])", "wide(members=[1])", "wide(members=3)"])
def test_lists_of_other_things_are_refused(text: str):
    with pytest.raises(UsageError, match=r"strategy wide: members=.*: give .*list of strategies"):
        parse_strategy(text, _KNOWN.__getitem__)


class _Capped(Strategy, tag="capped", kw_only=True, frozen=True):
    async def run(self, search: Search) -> None:
        async with search.phase("outer", tokens=40), search.phase("inner", tokens=70) as left:
            assert left.tokens_left == search.budget.tokens_left == 40
            await search.root.extend(Until.ANSWER)
            assert left.tokens_left == 40 - left.tokens_spent
        search.offer(search.root)


def test_what_is_left_is_the_tightest_of_the_phases_in_force():
    assert solve(scripted(), _Capped(), Budget(tokens=400)).reason is Reason.EXHAUSTED


class _Phased(Strategy, tag="phased", kw_only=True, frozen=True):
    """All samples under one cap, beside another lane with one of its own."""

    tokens: int

    async def run(self, search: Search) -> None:
        async def lane(branch: Branch) -> None:
            async with search.phase("lane", tokens=self.tokens), search.scope(branch, Samples()) as inside:
                await Samples(n=20).run(inside)

        async with search.each(search.root.fork(2), lane) as done:
            async for _ in done:
                continue


def test_a_cap_favours_finished_work_as_the_budget_does():
    solution = solve(scripted(pace=uneven), _Phased(tokens=150), Budget(tokens=5000))
    finished = [node for node in solution.graph.nodes() if node.stop == "eos"]
    assert len(finished) >= 8
    for lane in ("0.0", "0.1"):
        spent = sum(node.tokens_spent for node in solution.graph.nodes() if node.branch.startswith(lane))
        assert spent <= 150
    slow, fast = (solve(scripted(pace=pace), _Phased(tokens=45)) for pace in (uneven, lambda s, p: 0))
    assert outside_engine(slow) == outside_engine(fast)


class _TakesBack(Strategy, tag="takes_back", kw_only=True, frozen=True):
    async def run(self, search: Search) -> None:
        branch = search.root
        assert branch.thinking
        await branch.extend(Until.THINK)
        assert not branch.thinking
        assert len(branch.tokens) == branch.thinking_length + 1
        branch.truncate(branch.thinking_length)
        assert branch.thinking
        assert str(branch.profile.think_end) not in branch.text
        await branch.extend(Until.ANSWER)
        search.offer(branch)


def test_the_end_of_thinking_can_be_taken_back():
    assert solve(scripted(), _TakesBack()).candidates[0].complete


def test_a_strategy_without_a_run_says_so():
    class Idle(Strategy, tag="idle", kw_only=True, frozen=True):
        pass

    with pytest.raises(UsageError, match="strategy idle: define `async def run"):
        solve(scripted(), Idle())
