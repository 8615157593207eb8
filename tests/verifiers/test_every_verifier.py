"""The contract of all registered verifiers, where answers are scored and where steps are."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.evals.reference.problems import CountdownTask
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Strategy
from branchwise.strategies.beam import Beam
from branchwise.strategies.best_of_n import BestOfN
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.registry import find_verifier, parse_verifier, verifier_names
from branchwise.verifiers.sandbox import open_sandbox
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contract import EXAMPLES, check_best, check_books, check_limits, equipped, even_pace, paced
from support.scripted import ScriptedEngine
from support.searching import outside_engine

SENTENCE = "Use 3, 7 and 12 to make 43"
PROBLEM = Problem(text=f"{SENTENCE}\n>>> f(1)\n1", task=CountdownTask.recognise(SENTENCE))
"""Every verifier can check this one."""

WRITTEN = ("12*3+7", "7+3*12", "12+7", "")
"""Two right answers, a wrong one, none."""

SMALL = {
    "all_of": "all_of(of=[prm, confidence])",
    "any_of": "any_of(of=[replay, prm])",
    "code": "code",
    "confidence": "confidence(window=4)",
    "first_that_decides": "first_that_decides(of=[replay, judge(mode=score)])",
    "judge": "judge(mode=critique, critiques=1, critique_tokens=6)",
    "prm": "prm(aggregation=min)",
    "replay": "replay",
}
"""One of each name, small enough to be run many times."""

STRATEGIES = [BestOfN(n=4), Beam(n=4, width=2)]
each = pytest.mark.parametrize(
    ("name", "strategy"),
    [(name, strategy) for name in verifier_names() for strategy in STRATEGIES],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)


def sandboxed() -> bool:
    try:
        open_sandbox()
    except CapabilityError:
        return False
    return True


def skip_without_sandbox(name: str) -> None:
    if name == "code" and not sandboxed():
        pytest.skip("no sandbox here")


async def judged(
    engine: ScriptedEngine,
    name: str,
    strategy: Strategy,
    budget: Budget | None = None,
    *,
    reproducible: bool = True,
    **options: Any,
) -> Solution:
    async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
        return await reasoner.solve(
            PROBLEM, strategy, budget or Budget(tokens=10_000), verifier=SMALL[name], **options
        )


def run(engine: ScriptedEngine, name: str, strategy: Strategy, *args: Any, **options: Any) -> Solution:
    return anyio.run(lambda: judged(engine, name, strategy, *args, **options))


def test_every_registered_verifier_stands_in_the_table():
    assert set(SMALL) == set(verifier_names())
    assert {text.partition("(")[0] for text in SMALL.values()} == set(SMALL)


@each
@settings(max_examples=EXAMPLES)
@given(
    tokens=st.none() | st.integers(1, 200),
    flops=st.none() | st.integers(1, 500_000),
    kv=st.none() | st.integers(50, 150),
    fail_at=st.none() | st.integers(0, 60),
    fail_score_at=st.none() | st.integers(1, 8),
    seed=st.integers(0, 1000),
    reproducible=st.booleans(),
)
def test_the_budget_covers_it_and_the_books_balance_whatever_fails(
    name, strategy, tokens, flops, kv, fail_at, fail_score_at, seed, reproducible
):
    skip_without_sandbox(name)
    engine = equipped(answers=WRITTEN, pace=paced(seed), fail_at=fail_at, fail_score_at=fail_score_at)
    budget = Budget(tokens=tokens, flops=flops, kv_tokens=kv)
    solution = run(engine, name, strategy, budget, seed=seed, reproducible=reproducible)
    check_books(solution, engine)
    check_best(solution, PROBLEM.task)
    check_limits(solution, tokens=tokens, flops=flops, kv=kv)
    assert solution.error is None or (fail_at, fail_score_at) != (None, None)
    assert all(c.score is None or 0.0 <= c.score <= 1.0 for c in solution.candidates)


@each
def test_it_scores_what_is_offered_and_only_a_sound_one_decides(name: str, strategy: Strategy):
    skip_without_sandbox(name)
    solution = run(equipped(answers=WRITTEN[:3]), name, strategy, seed=1)  # a seed may find no answer in four
    assert any(candidate.score is not None for candidate in solution.candidates)
    if find_verifier(SMALL[name], PROBLEM).sound:
        right = {c.id for c in solution.candidates if c.verified}
        assert right <= {c.id for c in solution.candidates if c.answer in WRITTEN[:2]}
        assert (solution.reason is Reason.SOLVED) == bool(right)
    else:
        assert {candidate.verified for candidate in solution.candidates} == {None}
        assert solution.reason is Reason.EXHAUSTED


@each
@settings(max_examples=EXAMPLES)
@given(turns=st.integers(0, 500), reproducible=st.booleans(), seed=st.integers(0, 1000))
def test_an_interrupt_in_the_middle_of_a_check_leaks_nothing(name, strategy, turns, reproducible, seed):
    skip_without_sandbox(name)

    async def main() -> tuple[Solution, ScriptedEngine]:
        engine, interrupt, found = equipped(answers=WRITTEN, pace=paced(seed)), anyio.Event(), []

        async def search() -> None:
            options: dict[str, Any] = {"reproducible": reproducible, "seed": seed}
            found.append(await judged(engine, name, strategy, interrupt=interrupt, **options))

        async with anyio.create_task_group() as group:
            group.start_soon(search)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            interrupt.set()
        return found[0], engine

    solution, engine = anyio.run(main)
    assert solution.reason in (Reason.CANCELLED, Reason.EXHAUSTED, Reason.SOLVED)
    check_books(solution, engine)
    check_best(solution, PROBLEM.task)


@each
@settings(max_examples=EXAMPLES)
@given(
    tokens=st.none() | st.integers(1, 200),
    flops=st.none() | st.integers(1, 500_000),
    seed=st.integers(0, 1000),
    salt=st.integers(0, 1000),
)
def test_one_seed_is_one_verdict_at_any_pace(name, strategy, tokens, flops, seed, salt):
    skip_without_sandbox(name)
    budget = Budget(tokens=tokens, flops=flops)
    even, uneven = (
        outside_engine(run(equipped(answers=WRITTEN, pace=pace), name, strategy, budget, seed=seed))
        for pace in (even_pace, paced(salt))
    )
    assert even == uneven


@pytest.mark.parametrize("name", verifier_names())
def test_what_it_needs_is_refused_in_one_line_where_it_is_missing(name: str):
    skip_without_sandbox(name)
    verifier = find_verifier(SMALL[name], PROBLEM)
    needs: dict[str, Any] = {
        "prm": "prm" in verifier.models,
        "token_stats": getattr(verifier, "stats_top_k", 0) > 0,
    }
    assert set(verifier.models) <= {"prm"}
    met = run(equipped(answers=WRITTEN, draft=False, **needs), name, BestOfN(n=4))
    assert met.error is None
    for missing in (need for need, needed in needs.items() if needed):
        engine = equipped(**{**needs, missing: False})
        with pytest.raises(CapabilityError, match="needs") as caught:
            run(engine, name, BestOfN(n=4))
        assert verifier.name in str(caught.value)
        assert "\n" not in str(caught.value)
        assert engine.tokens_sampled == engine.live_sequences == 0


@pytest.mark.parametrize("name", ["code", "replay", "any_of", "first_that_decides"])
def test_a_problem_that_it_cannot_check_is_refused_in_one_line(name: str):
    with pytest.raises(UsageError) as caught:
        parse_verifier(SMALL[name]).make(Problem(text="How many?"))
    assert "\n" not in str(caught.value)
