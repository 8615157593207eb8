"""The voting strategies on the real orchestrator: what they draw, when they stop, what is pruned."""

import random
from collections import Counter

import anyio
import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import BranchOpened, Offered
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.run import branch_seed
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.adaptive_consistency import AdaptiveConsistency, Criterion
from branchwise.strategies.base import Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.dynamic_voting import DynamicVoting
from branchwise.strategies.esc import EarlyStoppingSelfConsistency as Esc
from branchwise.strategies.grammar import format_strategy, parse_strategy
from branchwise.strategies.posterior import beta_confidence
from branchwise.strategies.samples import DECIDED
from branchwise.strategies.self_consistency import SelfConsistency
from branchwise.strategies.short_m_at_k import ShortMAtK
from branchwise.strategies.votes import unanimous
from branchwise.verifiers.vote import Select
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import PLAIN, following
from support.searching import (
    PROMPT_LENGTH,
    DigitVerifier,
    outside_engine,
    scripted,
    search,
    solve,
    solve_until_deadline,
    uneven,
)

STRATEGIES = [
    SelfConsistency(n=12),
    SelfConsistency(n=12, stop="lossless"),
    Esc(window=3, n=12),
    AdaptiveConsistency(n=12),
    AdaptiveConsistency(n=12, wave=4, criterion=Criterion.DIRICHLET),
    DynamicVoting(n=12, wave=2),
    ShortMAtK(k=12, m=3),
]


def votes(prompt: str, seed: int) -> str:
    """One to four steps; 7 half of the time, no answer now and then, else one of three others."""
    rng = random.Random(seed)
    answer = rng.choice(["7", "7", "7", "7", "1", "2", "3", ""])
    return "ab;" * rng.randint(1, 4) + f"|{answer}$"


def samples_of(n: int, seed: int) -> list[str | None]:
    """The answers of the first `n` samples under that seed."""
    solution = solve(scripted(votes), BestOfN(n=n, select=Select.MAJORITY), seed=seed)
    return [candidate.answer for candidate in solution.candidates]


def majority(answers: list[str | None]) -> str | None:
    counted = Counter(answer for answer in answers if answer is not None).most_common(1)
    return counted[0][0] if counted else None


def answers(solution: Solution) -> list[str | None]:
    return [candidate.answer for candidate in solution.candidates]


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 20), reproducible=st.booleans())
def test_the_lossless_stop_gives_the_answer_of_the_whole_vote(seed: int, n: int, reproducible: bool):
    whole = solve(scripted(votes), SelfConsistency(n=n), seed=seed)
    engine = scripted(votes, pace=uneven)
    stopped = solve(engine, SelfConsistency(n=n, stop="lossless"), seed=seed, reproducible=reproducible)
    assert stopped.answer == whole.answer == majority(answers(whole))
    assert len(whole.candidates) == n
    assert stopped.usage.tokens <= whole.usage.tokens
    assert engine.live_sequences == 0


def test_samples_that_the_vote_does_not_wait_for_are_pruned_at_once_and_spend_nothing_more():
    def script(prompt: str, seed: int) -> str:
        return "ab;|7$" if seed % 4 else "ab;" * 60 + "|1$"

    engine = scripted(script)
    whole = solve(scripted(script), SelfConsistency(n=16))
    stopped = solve(engine, SelfConsistency(n=16, stop="lossless"))
    pruned = {node.branch for node in stopped.graph.nodes() if node.reason == DECIDED}
    assert pruned
    assert pruned.isdisjoint(candidate.id for candidate in stopped.candidates)
    assert all(n.state is NodeState.PRUNED for n in stopped.graph.nodes() if n.reason == DECIDED)
    assert stopped.answer == whole.answer == "7"
    assert stopped.usage.tokens == engine.tokens_sampled < whole.usage.tokens / 3
    (note,) = stopped.notes
    assert note == f"majority certain after {len(stopped.candidates)} of 16 samples"


def test_ties_go_to_the_first_seen_and_are_told():
    by_seed = {branch_seed(0, "task", (0, place)): answer for place, answer in enumerate("2121")}
    solution = solve(scripted(lambda prompt, seed: f"|{by_seed[seed]}$"), SelfConsistency(n=4))
    assert answers(solution) == ["2", "1", "2", "1"]
    assert solution.answer == "2"
    assert solution.notes == ("tie: 2 answers have 2 votes each, the first seen wins",)
    assert solution.graph.notes[-1]["answers"] == ["2", "1"]


@pytest.mark.pins("its_hub projection")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_abstentions_never_win(strategy: Strategy):
    def script(prompt: str, seed: int) -> str:
        return "|$" if seed % 3 else "ab;|42$"

    solution = solve(scripted(script), strategy)
    assert solution.answer == "42"
    assert answers(solution).count(None) > answers(solution).count("42") or isinstance(strategy, ShortMAtK)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), window=st.integers(1, 6), n=st.integers(1, 20))
def test_esc_draws_windows_until_one_agrees_and_votes_over_all(seed: int, window: int, n: int):
    stream = samples_of(n, seed)
    drawn = next(
        (end for end in range(window, n, window) if unanimous(stream[end - window : end])),
        n,
    )
    solution = solve(scripted(votes, pace=uneven), Esc(window=window, n=n), seed=seed)
    assert answers(solution) == stream[:drawn]
    assert solution.answer == majority(stream[:drawn])
    stopped = [note for note in solution.notes if note.startswith("window agrees")]
    assert stopped == ([f"window agrees after {drawn} of at most {n} samples"] if drawn < n else [])


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 25), wave=st.integers(1, 7))
def test_adaptive_consistency_stops_where_the_beta_criterion_holds_whatever_the_wave(
    seed: int, n: int, wave: int
):
    stream = samples_of(n, seed)

    def sure(count: int) -> bool:
        counted = [c for _, c in Counter(a for a in stream[:count] if a is not None).most_common(2)]
        most, second = (*counted, 0, 0)[:2]
        return bool(counted) and beta_confidence(most, second) >= 0.95

    needed = next((count for count in range(1, n + 1) if sure(count)), None)
    one_by_one = solve(scripted(votes), AdaptiveConsistency(n=n), seed=seed)
    waves = solve(scripted(votes, pace=uneven), AdaptiveConsistency(n=n, wave=wave), seed=seed)
    assert answers(one_by_one) == stream[: needed or n]
    told = [f"votes agree after {needed} of at most {n} samples"] if needed else []
    for solution in (one_by_one, waves):
        assert [note for note in solution.notes if note.startswith("votes agree")] == told
    ids = {candidate.id for candidate in waves.candidates}
    assert {f"0.{i}" for i in range(needed or n)} <= ids
    assert len(ids) < (needed or n) + wave


def test_dynamic_voting_stops_at_the_share():
    solution = solve(scripted(lambda prompt, seed: "|7$"), DynamicVoting(n=20, n_min=6))
    assert answers(solution) == ["7"] * 6
    varied = solve(scripted(lambda prompt, seed: f"|{seed % 97}$"), DynamicVoting(n=20, theta=0.5))
    assert len(varied.candidates) == 20


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 12), m=st.integers(1, 3))
def test_the_first_to_finish_with_an_answer_vote_and_the_shortest_wins_a_tie(seed: int, k: int, m: int):
    m = min(m, k)
    whole = solve(scripted(votes), SelfConsistency(n=k), seed=seed)
    finished = sorted(
        (c for c in whole.candidates if c.answer is not None), key=lambda c: (c.tokens, int(c.id[2:]))
    )[:m]
    solution = solve(scripted(votes, pace=uneven), ShortMAtK(k=k, m=m), seed=seed)
    voted = [c for c in solution.candidates if c.answer is not None]
    assert {c.id for c in voted} == {c.id for c in finished}
    counted = Counter(c.answer for c in finished)
    tied = [c for c in finished if counted[c.answer] == max(counted.values())]
    assert solution.answer == (tied[0].answer if tied else None)


def test_m_beyond_k_is_refused_in_one_line():
    with pytest.raises(UsageError, match="m=3: give at most k=2") as caught:
        ShortMAtK(k=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tokens", [1, 17, 60, 333])
def test_the_same_seed_gives_the_same_solution_at_any_speed(strategy: Strategy, tokens: int):
    slow, fast = (
        solve(scripted(votes, pace=pace), strategy, Budget(tokens=tokens), seed=3)
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)


def answers_when_told(text: str, seed: int) -> str:
    """Thinks without end; after the end of thinking it answers 5."""
    thought, end, said = text.partition("|")
    return ("5$"[len(said) :] or "$") if end else "ab;"[(len(thought) - len("Qtask:")) % 3]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("options", [{"budget": Budget(tokens=40, answer_reserve=4)}, {"max_tokens": 9}])
def test_what_was_cut_still_votes(strategy: Strategy, options: dict):
    engine = scripted()
    engine._scripts["policy"] = answers_when_told
    solution = solve(engine, strategy, **options)
    assert solution.answer == "5"
    assert solution.reason is (Reason.BUDGET if "budget" in options else Reason.EXHAUSTED)
    assert engine.live_sequences == 0


def test_short_m_concludes_no_more_of_what_was_cut_than_it_needs():
    engine = scripted()
    engine._scripts["policy"] = answers_when_told
    solution = solve(engine, ShortMAtK(k=6, m=2), max_tokens=9)
    assert answers(solution) == ["5", "5"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_verifier_is_asked(strategy: Strategy):
    class Refusing(DigitVerifier):
        async def score(self, candidate):
            raise AssertionError("asked")

    for max_tokens in (None, 12):
        solution = solve(scripted(votes), strategy, verifier=Refusing("7"), max_tokens=max_tokens)
        assert solution.error is None
        assert solution.verified is None


def test_one_failing_branch_of_eight_leaves_seven():
    solution = solve(scripted(votes, fail_at=17), SelfConsistency(n=8))
    assert len(solution.candidates) == 7
    assert solution.reason is Reason.EXHAUSTED
    window = solve(scripted(lambda prompt, seed: "ab;|7$", fail_at=17), Esc(window=4, n=8))
    assert len(window.candidates) == 7, "a window with a failure does not agree"


def endless(prompt: str, seed: int) -> str:
    """One branch in three ends at once, the others never."""
    return "|7$" if seed % 3 == 0 else "ab;" * 100_000


@pytest.mark.parametrize("strategy", [SelfConsistency(n=12), Esc(window=12, n=24), ShortMAtK(k=12, m=12)])
def test_a_deadline_gives_the_best_so_far(strategy: Strategy):
    def within(seconds: float) -> Solution:
        engine = scripted(endless, max_model_len=1_000_000)
        solution = solve(engine, strategy, Budget(seconds=seconds))
        assert engine.live_sequences == 0
        return solution

    solution = solve_until_deadline(within)
    assert (solution.reason, solution.answer) == (Reason.DEADLINE, "7")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_interrupt_gives_the_best_so_far(strategy: Strategy):
    async def interrupted() -> Solution:
        interrupt = anyio.Event()

        def watch(event: object) -> None:
            if isinstance(event, Offered):
                interrupt.set()

        return await search(
            scripted(lambda prompt, seed: "ab;|7$"), strategy, interrupt=interrupt, on_event=watch
        )

    solution = anyio.run(interrupted)
    assert (solution.reason, solution.answer) == (Reason.CANCELLED, "7")


@settings(max_examples=60)
@given(
    strategy=st.sampled_from([*STRATEGIES, BestOfN(n=12)]),
    tokens=st.integers(1, 300),
    seed=st.integers(0, 1000),
    reserve=st.none() | st.integers(0, 30),
    fail_at=st.none() | st.integers(0, 100),
    reproducible=st.booleans(),
)
def test_the_budget_is_kept_and_the_books_agree(strategy, tokens, seed, reserve, fail_at, reproducible):
    if reserve is not None and reserve >= tokens:
        reserve = 0
    engine = scripted(votes, pace=uneven, fail_at=fail_at)
    budget = Budget(tokens=tokens, answer_reserve=reserve)
    solution = solve(engine, strategy, budget, seed=seed, reproducible=reproducible)
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.graph.tokens_spent == solution.usage.tokens == engine.tokens_sampled + forced
    assert solution.graph.flops_spent == solution.usage.flops
    assert solution.usage.tokens <= tokens
    assert engine.live_sequences == 0
    if any(candidate.answer is not None and candidate.complete for candidate in solution.candidates):
        assert solution.answer is not None


@settings(max_examples=30)
@given(
    strategy=st.sampled_from(STRATEGIES),
    limit=st.builds(lambda flops: Budget(flops=flops), st.integers(1, 300_000))
    | st.builds(lambda tokens: Budget(kv_tokens=tokens), st.integers(1, 120)),
    seed=st.integers(0, 100),
    reproducible=st.booleans(),
)
def test_flops_and_kv_are_kept(strategy: Strategy, limit: Budget, seed: int, reproducible: bool):
    engine = scripted(votes, pace=uneven)
    solution = solve(engine, strategy, limit, seed=seed, reproducible=reproducible)
    assert solution.graph.flops_spent == solution.usage.flops
    assert limit.flops is None or solution.usage.flops <= limit.flops
    assert limit.kv_tokens is None or solution.usage.engine["kv_peak_tokens"] <= limit.kv_tokens
    assert engine.live_sequences == 0
    assert solution.error is None


@pytest.mark.parametrize(
    "strategy", [Esc(window=2, n=400), AdaptiveConsistency(n=400, wave=2), DynamicVoting(n=400, theta=1.0)]
)
def test_no_sample_is_begun_once_the_budget_is_spent(strategy: Strategy):
    opened: list[BranchOpened] = []

    def watch(event: object) -> None:
        if isinstance(event, BranchOpened):
            opened.append(event)

    solution = solve(
        scripted(lambda prompt, seed: f"|{seed % 97}$"), strategy, Budget(tokens=30), on_event=watch
    )
    assert solution.reason is Reason.BUDGET
    assert len(opened) < 16


def test_a_sample_that_its_context_cut_stops_nothing():
    engine = scripted(lambda prompt, seed: "the answer is 3. " * 30, profile=PLAIN, max_model_len=60)
    solution = solve(engine, AdaptiveConsistency(n=10))
    assert answers(solution) == ["3"] * 10
    assert not any(candidate.complete for candidate in solution.candidates)
    assert solution.answer == "3", "where nothing is complete, the cut ones choose"


def test_a_model_without_thinking_votes_too():
    script = scripted(lambda prompt, seed: f"the answer is {seed % 2}.$", profile=PLAIN)
    assert solve(script, SelfConsistency(n=9)).answer in ("0", "1")


def test_a_temperature_is_passed_on_and_none_leaves_the_models_own():
    seen = []

    class Recording(type(scripted())):
        async def extend(self, seq, params, meter, on_tokens=None):
            seen.append(params.sampling.temperature)
            return await super().extend(seq, params, meter, on_tokens)

    for strategy, temperature in ((SelfConsistency(n=2, temperature=0.7), 0.7), (Esc(n=2), 1.0)):
        seen.clear()
        solve(Recording({"policy": following(votes, PROMPT_LENGTH)}), strategy)
        assert set(seen) == {temperature}


KINDS = {str(kind.__struct_config__.tag): kind for kind in map(type, STRATEGIES)}


@pytest.mark.parametrize(
    "text",
    [
        "self_consistency",
        "self_consistency(n=none, stop=lossless, temperature=0.7)",
        "esc(window=8, n=64)",
        "adaptive_consistency(criterion=entropy, wave=4)",
        "dynamic_voting(theta=0.9)",
        "short_m_at_k(k=6, m=1)",
    ],
)
def test_the_grammar_names_them(text: str):
    strategy = parse_strategy(text, KINDS.__getitem__)
    assert parse_strategy(format_strategy(strategy), KINDS.__getitem__) == strategy
    assert strategy.selection() in (Select.MAJORITY, Select.SHORT_MAJORITY)
    assert strategy.lossless


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("self_consistency(stop=early)", "give one of lossless or none"),
        ("esc(window=0)", "give 1 to 4096"),
        ("adaptive_consistency(criterion=random)", "give one of beta, dirichlet, entropy, majority"),
        ("dynamic_voting(theta=0.0)", "give above 0 to 1"),
    ],
)
def test_wrong_parameters_are_refused_in_one_line(text: str, expected: str):
    with pytest.raises(UsageError) as caught:
        parse_strategy(text, KINDS.__getitem__)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
