"""`speculative_rejection`: the memory is never overrun, the worst go first, and what they held is used
again."""

import random

import anyio
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import Event, Pruned
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.speculative_rejection import (
    PartialScore,
    SpeculativeRejection,
    kept_count,
    ranked,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, DigitVerifier, outside_engine, search, solve, uneven

LETTERS = "abcdefgh"


def sure(text: str) -> float:
    """The later in the alphabet the better."""
    letter = text[PROMPT_LENGTH:][:1]
    return LETTERS.index(letter) / 10 if letter in LETTERS else 0.0


def lettered(length: int = 6, steps: int = 4, **options) -> ScriptedEngine:
    """A trace repeats one letter, drawn by its seed, and answers that letter's number."""

    def plan(prompt: str, seed: int) -> str:
        letter = random.Random(seed).choice(LETTERS)
        return (letter * (length - 1) + ";") * steps + f"|{LETTERS.index(letter)}$"

    return ScriptedEngine({"policy": following(plan, PROMPT_LENGTH)}, rewards={"prm": sure}, **options)


def rounds(solution: Solution) -> list[dict]:
    return [note for note in solution.graph.notes if note["note"].startswith("memory full")]


@pytest.mark.parametrize(
    ("live", "alpha", "kept"),
    [
        (1, 0.5, 1),  # rounding half to even would drop the last one
        (2, 0.5, 1),
        (3, 0.5, 2),
        (5, 0.5, 3),
        (8, 0.5, 4),
        (100, 0.29, 71),  # 0.29 * 100 is 28.999... in floats
        (10, 0.9, 1),
        (2, 0.3, 1),  # something always comes free
        (2, 0.99, 1),
    ],
)
def test_how_many_survive(live: int, alpha: float, kept: int):
    assert kept_count(live, alpha) == kept


def test_rejection_ends_with_one_trace():
    live, widths = 37, []
    while live > 1:
        live = kept_count(live, 0.5)
        widths.append(live)
    assert widths == [19, 10, 5, 3, 2, 1]


def test_unknown_scores_rank_as_the_mean_and_equals_by_age():
    assert ranked([0.2, None, 0.9, 0.2]) == [2, 1, 0, 3]
    assert ranked([None, None]) == [0, 1]
    assert ranked([]) == []


def test_the_worst_are_rejected_and_their_memory_is_used_again():
    engine = lettered()
    solution = solve(engine, SpeculativeRejection(n=8, round_tokens=6), Budget(kv_tokens=70))
    assert solution.usage.engine["kv_peak_tokens"] <= 70
    assert solution.usage.tokens > 70, "more was written than ever stood at once"
    assert engine.parked == [], "nobody had to give way"
    assert rounds(solution)
    for note in rounds(solution):
        kept = set(note["kept"])
        worst_kept = min(note["scores"][name] for name in kept)
        assert all(score <= worst_kept for name, score in note["scores"].items() if name not in kept)
    rejected = [node for node in solution.graph.nodes() if node.reason.startswith("rejected in round")]
    assert rejected
    assert all(node.state is NodeState.PRUNED for node in rejected)
    scored = rounds(solution)[0]["scores"]
    best = max(scored.values())
    assert solution.score == best, "the best of all traces is the answer"
    assert solution.answer == str(round(10 * best))


def test_a_round_grows_all_traces_by_what_the_memory_holds():
    solution = solve(
        lettered(length=20, steps=3), SpeculativeRejection(n=4, round_tokens=10), Budget(kv_tokens=70)
    )
    # 70 positions, 6 of the prompt and 8 kept free for an answer: 56 for 4 traces, 14 each.
    first = rounds(solution)[0]
    assert solution.graph.notes[0] == {
        "note": "4 traces in a memory of 70 KV positions, ranked by verifier",
        "width": 4,
        "memory": 70,
    }
    assert first["note"] == "memory full: kept 2 of 4 traces"
    lost = [node for node in solution.graph.nodes() if node.reason.startswith("rejected in round 1")]
    assert [node.length for node in lost] == [14, 14]


def test_without_any_cap_memory_is_what_the_batch_needs_for_a_round():
    solution = solve(lettered(), SpeculativeRejection(n=8, round_tokens=6), Budget())
    assert solution.graph.notes[0]["memory"] == PROMPT_LENGTH + 48
    assert solution.usage.engine["kv_peak_tokens"] <= PROMPT_LENGTH + 48
    assert solution.reason is Reason.EXHAUSTED


def test_its_own_cap_holds_below_the_budgets():
    solution = solve(
        lettered(), SpeculativeRejection(n=8, kv_tokens=60, round_tokens=4), Budget(kv_tokens=90)
    )
    assert solution.usage.engine["kv_peak_tokens"] <= 60
    assert len(solution.candidates) >= 1


def test_finished_traces_keep_their_score_and_free_their_memory():
    def plan(prompt: str, seed: int) -> str:
        return "|7$" if seed % 2 else "a" * 60 + ";|1$"

    engine = ScriptedEngine(
        {"policy": following(plan, PROMPT_LENGTH)}, rewards={"prm": lambda text: 0.2}, pace=uneven
    )
    solution = solve(engine, SpeculativeRejection(n=12, round_tokens=5), Budget(kv_tokens=100))
    early = [candidate for candidate in solution.candidates if candidate.answer == "7"]
    assert early
    freed = [node for node in solution.graph.nodes() if node.state is NodeState.FINISHED]
    assert len(freed) == len(early) + 1
    offered = {candidate.id for candidate in early}
    for note in rounds(solution):
        assert not offered & set(note["scores"]), "a finished trace is not ranked again"
    assert solution.usage.engine["kv_peak_tokens"] <= 100


def test_mean_log_probabilities_rank_where_nothing_scores_steps():
    engine = ScriptedEngine({"policy": following(lambda p, s: "ab;" * 9 + f"|{s % 9}$", PROMPT_LENGTH)})
    solution = solve(engine, SpeculativeRejection(n=4, round_tokens=8), Budget(kv_tokens=60))
    assert "ranked by logprob" in solution.notes[0]
    assert rounds(solution)[0]["kept"] == ["0.0", "0.1"], "equals go by branch id"
    assert solution.answer is not None
    assert solution.score == pytest.approx(0.6065306597126334)  # exp(-0.5)


def test_a_score_that_is_not_there_is_refused():
    engine = ScriptedEngine({"policy": following(lambda p, s: "|1$", PROMPT_LENGTH)})
    with pytest.raises(CapabilityError, match="strategy speculative_rejection needs a verifier"):
        solve(engine, SpeculativeRejection(score=PartialScore.VERIFIER))
    with pytest.raises(UsageError, match=r"alpha=1\.0: give above 0 to below 1"):
        SpeculativeRejection(alpha=1.0)


def test_a_sound_pass_ends_it():
    strategy = SpeculativeRejection(n=8, round_tokens=40)
    any_answer = str(solve(lettered(), strategy, Budget()).candidates[2].answer)
    solution = solve(lettered(), strategy, Budget(), verifier=DigitVerifier(any_answer))
    assert (solution.reason, solution.answer, solution.verified) == (Reason.SOLVED, any_answer, True)


def test_a_failing_trace_leaves_the_others():
    engine = lettered(fail_at=20)
    solution = solve(engine, SpeculativeRejection(n=8, round_tokens=20), Budget(kv_tokens=200))
    failed = [node for node in solution.graph.nodes() if node.reason.startswith("failed")]
    assert len({node.branch for node in failed}) == 1
    assert solution.answer is not None
    assert engine.live_sequences == 0


@pytest.mark.parametrize("memory", [24, 30, 40])
def test_the_last_trace_concludes_in_a_full_memory(memory: int):
    def script(text: str, seed: int) -> str:
        thought, end, said = text.partition("|")
        return ("5$"[len(said) :] or "$") if end else "ab;"[(len(thought) - PROMPT_LENGTH) % 3]

    engine = ScriptedEngine({"policy": script}, rewards={"prm": lambda text: 0.5})
    solution = solve(engine, SpeculativeRejection(n=4, round_tokens=4), Budget(kv_tokens=memory))
    assert solution.answer == "5"
    assert solution.usage.engine["kv_peak_tokens"] <= memory


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 12),
    alpha=st.floats(0.05, 0.95),
    kv_tokens=st.none() | st.integers(1, 150),
    tokens=st.none() | st.integers(1, 250),
    fail_at=st.none() | st.integers(0, 100),
    reproducible=st.booleans(),
)
def test_the_books_balance_and_the_cap_holds(n, alpha, kv_tokens, tokens, fail_at, reproducible):
    engine = lettered(fail_at=fail_at, pace=uneven)
    budget = Budget(tokens=tokens, kv_tokens=kv_tokens)
    solution = solve(
        engine, SpeculativeRejection(n=n, alpha=alpha, round_tokens=7), budget, reproducible=reproducible
    )
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_sampled + forced
    assert solution.graph.flops_spent == solution.usage.flops
    assert tokens is None or solution.usage.tokens <= tokens
    assert kv_tokens is None or solution.usage.engine["kv_peak_tokens"] <= kv_tokens
    assert engine.live_sequences == 0
    if fail_at is None and tokens is None and (kv_tokens or 99) > 60:
        assert solution.answer is not None


@settings(max_examples=10, deadline=None)
@given(turns=st.integers(0, 80))
def test_cancelling_anywhere_leaks_nothing(turns: int):
    engine = lettered(pace=uneven)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            strategy = SpeculativeRejection(n=6, round_tokens=5)
            group.start_soon(search, engine, strategy, Budget(kv_tokens=50))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
    assert engine.live_sequences == 0


def test_one_seed_is_one_solution_at_any_speed():
    slow, fast = (
        solve(lettered(pace=pace), SpeculativeRejection(n=8, round_tokens=6), Budget(kv_tokens=70))
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)


def test_on_the_engine_the_pool_stays_under_the_cap_and_rejected_blocks_are_written_again():
    cap, width = 150, 8
    held: list[int] = []
    rejected: list[str] = []

    async def main() -> Solution:
        async with Reasoner.open("reference", threads=1) as reasoner:
            assert isinstance(reasoner.backend, Engine)
            pool = reasoner.backend.scheduler.memories["policy"].pool

            def watch(event: Event) -> None:
                held.append(pool.owned * pool.block_size)
                if isinstance(event, Pruned) and event.reason.startswith("rejected"):
                    rejected.append(event.branch)

            strategy = SpeculativeRejection(n=width, round_tokens=8)
            return await reasoner.solve(
                "12 + 7*3 - 5*2 + 4", strategy, Budget(kv_tokens=cap), seed=1, on_event=watch
            )

    solution = anyio.run(main)
    assert solution.answer is not None
    assert len(rejected) >= width // 2
    assert solution.usage.engine["kv_peak_tokens"] <= cap
    assert max(held) <= cap + width * 15, "each trace may hold one block of 16 that is not full"
    assert solution.usage.engine["preemptions"] == 0
    assert solution.usage.tokens + solution.usage.prompt_tokens > cap, "freed memory was written again"
