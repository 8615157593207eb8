"""The contract of all registered strategies: the budget, the books, every way to end, and what they need."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from branchwise.engine.errors import CapabilityError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import Offered
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.ab_mcts import AbMcts
from branchwise.strategies.adaptive import Adaptive
from branchwise.strategies.adaptive_consistency import AdaptiveConsistency
from branchwise.strategies.aggregate import Aggregate
from branchwise.strategies.base import Strategy
from branchwise.strategies.beam import Beam
from branchwise.strategies.best_first import BestFirst
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.deepconf import DeepConf
from branchwise.strategies.dvts import Dvts
from branchwise.strategies.dynamic_voting import DynamicVoting
from branchwise.strategies.esc import EarlyStoppingSelfConsistency
from branchwise.strategies.ets import Ets
from branchwise.strategies.greedy import Greedy
from branchwise.strategies.mcts import Mcts
from branchwise.strategies.portfolio import Portfolio
from branchwise.strategies.rebase import Rebase
from branchwise.strategies.registry import find_strategy, strategy_names, tag_of
from branchwise.strategies.self_consistency import SelfConsistency
from branchwise.strategies.short_m_at_k import ShortMAtK
from branchwise.strategies.speculative_rejection import SpeculativeRejection
from branchwise.strategies.tree import TreeStrategy
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contract import EXAMPLES, check_best, check_books, check_limits, equipped, even_pace, paced
from support.scripted import ScriptedEngine
from support.searching import PROMPT_LENGTH, DigitVerifier, outside_engine, search, solve
from support.small_strategies import SMALL

OF_EIGHT: dict[str, Strategy] = {
    "ab_mcts": AbMcts(expansions=8, batch=5),
    "adaptive": Adaptive(probe=0, arm=BestOfN(n=8)),
    "adaptive_consistency": AdaptiveConsistency(n=8, wave=8, threshold=1.0),
    "aggregate": Aggregate(n=8, k=2, rounds=0),
    "beam": Beam(n=8, width=2),
    "best_first": BestFirst(width=8, expansions=4),
    "best_of_n": BestOfN(n=8),
    "deepconf": DeepConf(n=8, warmup=8),
    "dvts": Dvts(n=8, width=2),
    "dynamic_voting": DynamicVoting(n=8, wave=8, theta=1.0),
    "esc": EarlyStoppingSelfConsistency(window=8, n=8),
    "ets": Ets(width=8),
    "mcts": Mcts(rollouts=8, width=8),
    "portfolio": Portfolio(members=(Greedy(), BestOfN(n=7))),
    "rebase": Rebase(width=8),
    "self_consistency": SelfConsistency(n=8),
    "short_m_at_k": ShortMAtK(k=8, m=8),
    "speculative_rejection": SpeculativeRejection(n=8, round_tokens=32),
}
"""Those with branches beside each other, eight of them at first."""

LIMITS = {
    "tokens": st.none() | st.integers(1, 150),
    "flops": st.none() | st.integers(1, 150_000),
    "kv": st.none() | st.integers(20, 120),
}
"""Of a budget, each or none."""
VERIFIERS = st.sampled_from(["prm", DigitVerifier("3"), DigitVerifier("9")])
each_name = pytest.mark.parametrize("name", strategy_names())


def test_every_registered_strategy_stands_in_the_table():
    assert set(SMALL) == set(strategy_names())
    for name, strategy in SMALL.items():
        assert type(strategy) is find_strategy(name)
        assert name == tag_of(type(strategy))
    for name, strategy in OF_EIGHT.items():
        assert type(strategy) is type(SMALL[name])


@each_name
@settings(max_examples=EXAMPLES)
@given(
    **LIMITS,
    fail_at=st.none() | st.integers(0, 60),
    fail_score_at=st.none() | st.integers(1, 8),
    verifier=VERIFIERS,
    seed=st.integers(0, 1000),
    reproducible=st.booleans(),
)
def test_the_budget_is_kept_and_the_books_balance_whatever_fails(
    name, tokens, flops, kv, fail_at, fail_score_at, verifier, seed, reproducible
):
    engine = equipped(pace=paced(seed), fail_at=fail_at, fail_score_at=fail_score_at)
    budget = Budget(tokens=tokens, flops=flops, kv_tokens=kv)
    solution = solve(engine, SMALL[name], budget, verifier=verifier, seed=seed, reproducible=reproducible)
    check_books(solution, engine)
    check_best(solution)
    check_limits(solution, tokens=tokens, flops=flops, kv=kv)
    assert solution.error is None or (fail_at, fail_score_at) != (None, None)


@each_name
@pytest.mark.parametrize("limit", [{"tokens": 1}, {"flops": 1}, {"kv_tokens": 6}])
def test_a_budget_for_nothing_is_the_reason(name: str, limit: dict[str, Any]):
    solution = solve(equipped(), SMALL[name], Budget(**limit), verifier="prm")
    assert (solution.reason, solution.error) == (Reason.BUDGET, None)


@each_name
@settings(max_examples=EXAMPLES)
@given(turns=st.integers(0, 400), reproducible=st.booleans(), seed=st.integers(0, 1000))
def test_an_interrupt_anywhere_keeps_the_best_and_a_cancelled_caller_leaks_nothing(
    name, turns, reproducible, seed
):
    async def main() -> None:
        for interrupted in (True, False):
            engine, interrupt, found = equipped(pace=paced(seed)), anyio.Event(), []
            options: dict[str, Any] = {"reproducible": reproducible, "seed": seed, "verifier": "prm"}

            async def run(engine=engine, interrupt=interrupt, found=found, options=options) -> None:
                found.append(await search(engine, SMALL[name], interrupt=interrupt, **options))

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                if interrupted:
                    interrupt.set()
                else:
                    group.cancel_scope.cancel()
            assert engine.live_sequences == 0
            if interrupted:
                (solution,) = found
                assert solution.reason in (Reason.CANCELLED, Reason.EXHAUSTED)
                check_books(solution, engine)
                check_best(solution)

    anyio.run(main)


@each_name
def test_an_interrupt_behind_the_first_offer_returns_an_answer(name: str):
    async def main() -> tuple[Solution, ScriptedEngine]:
        engine, interrupt = equipped(), anyio.Event()

        def watch(event: object) -> None:
            if isinstance(event, Offered) and event.answer is not None:
                interrupt.set()

        solution = await search(engine, SMALL[name], verifier="prm", interrupt=interrupt, on_event=watch)
        return solution, engine

    solution, engine = anyio.run(main)
    assert solution.reason in (Reason.CANCELLED, Reason.EXHAUSTED)
    assert solution.answer is not None
    check_books(solution, engine)


class Slow(ScriptedEngine):
    """Each token takes at least a hundredth of a second."""

    async def _granted(self, meter, work, order) -> bool:
        await anyio.sleep(0.01)
        return await super()._granted(meter, work, order)


@each_name
def test_a_deadline_keeps_the_best_and_is_the_reason(name: str):
    engine = equipped(steps=400, kind=Slow)
    solution = solve(engine, SMALL[name], Budget(seconds=0.05), verifier="prm")
    assert (solution.reason, solution.error) == (Reason.DEADLINE, None)
    check_books(solution, engine)
    check_best(solution)


@pytest.mark.parametrize("name", OF_EIGHT)
def test_one_failing_branch_of_eight_leaves_seven(name: str):
    engine = equipped(fail_at=2)
    solution = solve(engine, OF_EIGHT[name], verifier="prm")
    check_books(solution, engine)
    check_best(solution)
    assert solution.answer is not None
    steps = [node for node in solution.graph.nodes() if node.kind == "step"]
    (failed,) = {node.branch for node in steps if node.reason == "failed: injected failure"}
    first = {node.branch: node.text for node in steps if node.start == PROMPT_LENGTH}
    assert len(first) == 8
    assert all(text.endswith(";") for branch, text in first.items() if branch != failed)
    assert failed not in {candidate.id for candidate in solution.candidates}
    if not isinstance(OF_EIGHT[name], TreeStrategy | Portfolio):
        assert len(solution.candidates) == 7


@each_name
@settings(max_examples=EXAMPLES)
@given(
    **LIMITS,
    verifier=VERIFIERS,
    seed=st.integers(0, 1000),
    salt=st.integers(0, 1000),
)
def test_one_seed_is_one_solution_at_any_pace(name, tokens, flops, kv, verifier, seed, salt):
    budget = Budget(tokens=tokens, flops=flops, kv_tokens=kv)
    even, uneven = (
        outside_engine(solve(equipped(pace=pace), SMALL[name], budget, verifier=verifier, seed=seed))
        for pace in (even_pace, paced(salt))
    )
    assert even == uneven


@each_name
def test_what_it_needs_is_all_it_needs_and_is_refused_in_one_line_where_it_is_missing(name: str):
    strategy = SMALL[name]
    needs = strategy.requirements()
    scored = needs.scores or needs.step_scores
    has: dict[str, Any] = {
        "prm": scored,
        "draft": "draft" in needs.models,
        "token_stats": "token_stats" in needs.capabilities,
    }
    assert set(needs.models) <= {"draft"}
    assert set(needs.capabilities) <= {"token_stats"}
    solution = solve(equipped(**has), strategy)
    assert (solution.error, solution.answer is not None) == (None, True)
    for missing, said in (("prm", "--prm"), ("draft", "--draft"), ("token_stats", "statistics of each")):
        if not has[missing]:
            continue
        engine = equipped(**{**has, missing: False})
        with pytest.raises(CapabilityError) as caught:
            solve(engine, strategy)
        assert name in str(caught.value)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert engine.tokens_sampled == engine.live_sequences == 0
    if needs.step_scores:
        with pytest.raises(CapabilityError, match=f"strategy {name} needs scores of single steps"):
            solve(equipped(prm=False), strategy, verifier=DigitVerifier("3"))
