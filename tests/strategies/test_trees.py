"""What holds for every tree strategy: the books, the budget, failures, cancellation, and its KV."""

import anyio
import anyio.lowlevel
import msgspec
import pytest
from branchwise.reasoning.branch import SearchBranch
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.solution import Reason
from branchwise.strategies.ab_mcts import AbMcts, Unit
from branchwise.strategies.beam import Beam
from branchwise.strategies.best_first import BestFirst
from branchwise.strategies.dvts import Dvts
from branchwise.strategies.ets import Ets
from branchwise.strategies.mcts import Evaluation, Mcts, SelectionRule
from branchwise.strategies.rebase import Rebase
from branchwise.strategies.tree import TreeStrategy
from hypothesis import given, settings
from hypothesis import strategies as st
from support.searching import DigitVerifier, outside_engine, search, solve, uneven
from support.trees import TreeEngine, planted, wandering

TREES = [
    Beam(n=4, width=2),
    Beam(n=3, width=2, lookahead=1, dedup=False),
    Dvts(n=4, width=2),
    Rebase(width=4),
    BestFirst(width=2, expansions=6),
    Ets(width=4),
    Mcts(rollouts=10, width=2),
    Mcts(rollouts=8, width=2, evaluate=Evaluation.ROLLOUT, rule=SelectionRule.UCT, parallel=3),
    AbMcts(unit=Unit.STEP, expansions=12, batch=3),
]
NAMES = ["beam", "beam-lookahead", "dvts", "rebase", "best_first", "ets", "mcts", "mcts-rollout", "ab_mcts"]
each_tree = pytest.mark.parametrize("strategy", TREES, ids=NAMES)
PRUNING = [strategy for strategy in TREES if not isinstance(strategy, AbMcts)]
"""In adaptive branching each step may get another child, so that none is pruned before its end."""
SCORING = [strategy for strategy in TREES if getattr(strategy, "evaluate", None) != Evaluation.ROLLOUT]
VERIFIERS = st.sampled_from(["prm", DigitVerifier("3"), DigitVerifier("9")])


def books_balance(engine: TreeEngine, solution) -> bool:
    spent = solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_paid
    return spent and solution.graph.flops_spent == solution.usage.flops


@settings(max_examples=25)
@given(
    strategy=st.sampled_from(TREES),
    tokens=st.integers(1, 400),
    flops=st.none() | st.integers(1, 300_000),
    kv=st.none() | st.integers(20, 120),
    verifier=VERIFIERS,
    seed=st.integers(0, 1000),
)
def test_the_budget_is_kept_and_the_books_balance(strategy, tokens, flops, kv, verifier, seed):
    engine = wandering(pace=uneven)
    budget = Budget(tokens=tokens, flops=flops, kv_tokens=kv)
    solution = solve(engine, strategy, budget, verifier=verifier, seed=seed)
    assert solution.error is None
    assert solution.usage.tokens <= tokens
    assert flops is None or solution.usage.flops <= flops
    assert books_balance(engine, solution)
    assert engine.live_sequences == 0
    assert not engine.broken


@settings(max_examples=25)
@given(
    strategy=st.sampled_from(TREES),
    fail_at=st.integers(0, 80),
    tokens=st.sampled_from([60, 150, 10_000]),
    verifier=VERIFIERS,
)
def test_one_failing_branch_leaves_the_others(strategy, fail_at, tokens, verifier):
    engine = wandering(fail_at=fail_at, pace=uneven)
    solution = solve(engine, strategy, Budget(tokens=tokens), verifier=verifier)
    assert solution.error is None
    assert solution.candidates
    assert books_balance(engine, solution)
    assert engine.live_sequences == 0
    assert not engine.broken


@settings(max_examples=15)
@given(strategy=st.sampled_from(TREES), turns=st.integers(0, 700), reproducible=st.booleans())
def test_cancelling_anywhere_leaks_nothing_and_an_interrupt_keeps_the_best(strategy, turns, reproducible):
    async def interrupted() -> None:
        engine, interrupt = wandering(pace=uneven), anyio.Event()
        solutions = []

        async def run() -> None:
            solutions.append(
                await search(engine, strategy, verifier="prm", reproducible=reproducible, interrupt=interrupt)
            )

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            interrupt.set()
        (solution,) = solutions
        assert solution.reason in (Reason.CANCELLED, Reason.EXHAUSTED)
        assert (solution.answer is not None) == any(c.answer is not None for c in solution.candidates)
        assert solution.graph.tokens_spent == solution.usage.tokens
        assert engine.live_sequences == 0
        assert not engine.broken

    async def cancelled() -> None:
        engine = wandering(pace=uneven)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: search(engine, strategy, verifier="prm", reproducible=reproducible))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert engine.live_sequences == 0

    anyio.run(interrupted)
    anyio.run(cancelled)


@each_tree
@pytest.mark.parametrize("tokens", [1, 40, 120, 10_000])
def test_the_same_seed_gives_the_same_search_at_any_speed(strategy: TreeStrategy, tokens: int):
    slow, fast = (
        solve(wandering(pace=pace), strategy, Budget(tokens=tokens), verifier="prm", seed=3)
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)


@pytest.mark.pins("openreasoner/openr tree.py")
@pytest.mark.parametrize(
    "strategy", [Beam(n=4, width=2), Dvts(n=4, width=2), Rebase(width=4), BestFirst(width=2, expansions=50)]
)
def test_a_budget_in_the_middle_of_a_level_still_answers_the_best_first(strategy: TreeStrategy):
    solution = solve(wandering(steps=40), strategy, Budget(tokens=60, answer_reserve=3), verifier="prm")
    assert solution.reason is Reason.BUDGET
    assert solution.answer is not None
    (whole,) = [candidate for candidate in solution.candidates if candidate.complete]
    assert whole.score == max(c.score for c in solution.candidates if c.score is not None)


@each_tree
def test_a_full_context_is_the_end_of_a_path_and_no_failure(strategy: TreeStrategy):
    engine = wandering(steps=400, max_model_len=40)
    solution = solve(engine, strategy, verifier="prm")
    assert (solution.reason, solution.error) == (Reason.EXHAUSTED, None)
    assert solution.candidates
    assert engine.live_sequences == 0


@pytest.mark.pins("thu-wyz/inference_scaling rebase.py")
@each_tree
def test_the_length_of_a_candidate_is_a_limit(strategy: TreeStrategy):
    solution = solve(wandering(steps=400), strategy, max_tokens=32, verifier="prm")
    assert solution.answer is not None
    assert max(candidate.tokens for candidate in solution.candidates) <= 32


@pytest.mark.parametrize("strategy", PRUNING)
@pytest.mark.parametrize("seed", range(3))
def test_pruning_lowers_the_peak_of_kv_and_changes_nothing_else(
    strategy: TreeStrategy, seed: int, monkeypatch: pytest.MonkeyPatch
):
    pruning = solve(wandering(letters="abcdef"), strategy, verifier="prm", seed=seed)
    prune = SearchBranch.prune

    def kept(branch: SearchBranch, reason: str) -> None:
        if branch.run.closing:
            prune(branch, reason)

    monkeypatch.setattr(SearchBranch, "prune", kept)
    keeping = solve(wandering(letters="abcdef"), strategy, verifier="prm", seed=seed)
    assert keeping.candidates == pruning.candidates
    assert keeping.usage.tokens == pruning.usage.tokens
    assert pruning.usage.engine["kv_peak_tokens"] < keeping.usage.engine["kv_peak_tokens"]


@each_tree
def test_every_branch_that_did_not_finish_says_why_it_ended(strategy: TreeStrategy):
    solution = solve(wandering(), strategy, verifier="prm")
    nodes = [node for node in solution.graph.nodes() if node.kind == "step"]
    assert all(node.reason for node in nodes if node.state is NodeState.PRUNED)
    assert {node.state for node in nodes} == {NodeState.PRUNED, NodeState.FINISHED}


@pytest.mark.parametrize("strategy", SCORING)
def test_the_sound_check_has_the_last_word_and_the_step_scores_lead(strategy: TreeStrategy):
    solution = solve(wandering(), strategy, verifier=DigitVerifier("9"))
    assert solution.answer is None
    assert {c.verified for c in solution.candidates} == {False}
    scored = [node for node in solution.graph.nodes() if "prm" in node.scores]
    assert scored


@each_tree
def test_temperature_is_passed_on_and_none_is_the_models_own(strategy: TreeStrategy):
    for temperature, seen in ((0.3, {0.3}), (None, {1.0})):
        engine = planted({})
        temperatures = set()
        extend = engine.extend

        async def recorded(seq, params, meter, on_tokens=None, extend=extend, temperatures=temperatures):
            temperatures.add(params.sampling.temperature)
            return await extend(seq, params, meter, on_tokens)

        engine.extend = recorded
        solve(engine, msgspec.structs.replace(strategy, temperature=temperature), verifier="prm")
        assert temperatures == seen
