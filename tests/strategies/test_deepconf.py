"""`deepconf`: who votes and with what weight, where traces stop, and that what stopped stays paid for."""

import math
import random

import anyio
import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.sampling.detail import TokenStats
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.run import branch_seed
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.confidence_vote import leading_share, scale_of
from branchwise.strategies.deepconf import DeepConf, Measure, Mode
from branchwise.verifiers.token_confidence import stop_threshold
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, DigitVerifier, outside_engine, scripted, search, solve, uneven

CONFIDENCE = {"a": 8.0, "b": 4.0, "c": 2.0, "d": 1.0}
"""Of a token whose character is that; any other token is as sure as the last letter before it."""


def stats(text: str, seed: int) -> TokenStats:
    letter = next((x for x in reversed(text[PROMPT_LENGTH:]) if x in CONFIDENCE), "a")
    return TokenStats(entropy=0.0, self_certainty=0.0, confidence=CONFIDENCE[letter])


def engine(texts: list[str], **options) -> ScriptedEngine:
    """The n-th child of the root writes the n-th of `texts`, the last one where there are no more (run seed
    0)."""
    places = {branch_seed(0, "task", (0, index)): index for index in range(64)}

    def plan(prompt: str, seed: int) -> str:
        return texts[min(places[seed], len(texts) - 1)]

    return ScriptedEngine({"policy": following(plan, PROMPT_LENGTH)}, stats=stats, **options)


def trace(letter: str, answer: int, length: int = 8) -> str:
    return f"{letter * length};|{answer}$"


def scores(solution: Solution) -> dict[str, float | None]:
    return {candidate.id: candidate.score for candidate in solution.candidates}


def note(solution: Solution, start: str) -> dict:
    return next(note for note in solution.graph.notes if note["note"].startswith(start))


OFFLINE = DeepConf(n=5, mode=Mode.OFFLINE, eta=100.0, window=4)


def test_offline_the_weights_are_confidences():
    texts = [trace("a", 1), trace("d", 2), trace("d", 2), trace("c", 2), trace("d", 2)]
    solution = solve(engine(texts), OFFLINE)
    assert solution.answer == "1", "8 against 1 + 1 + 2 + 1: no majority of heads"
    assert scores(solution) == {"0.0": 1.0, "0.1": 0.125, "0.2": 0.125, "0.3": 0.25, "0.4": 0.125}


def test_offline_only_the_surest_percent_vote():
    texts = [trace("a", 1), trace("b", 2), trace("b", 2), trace("b", 2), trace("c", 3)]
    assert solve(engine(texts), OFFLINE).answer == "2", "12 against 8 and 2"
    kept = solve(engine(texts), DeepConf(n=5, mode=Mode.OFFLINE, eta=10.0, window=4))
    assert kept.answer == "1"
    # The 90th percentile of 2, 4, 4, 4, 8 lies at 6.4.
    assert note(kept, "1 of 5 traces vote")["voting"] == ["0.0"]
    assert scores(kept) == {"0.0": 1.0, "0.1": 0.0, "0.2": 0.0, "0.3": 0.0, "0.4": 0.0}


@pytest.mark.parametrize(
    ("measure", "answer"),
    # Trace 1 is weak in its middle, trace 2 at its end, trace 3 never, and never very sure.
    [(Measure.LOWEST, "3"), (Measure.TAIL, "1"), (Measure.MEAN, "1")],
)
def test_measures_rank_differently(measure: Measure, answer: str):
    texts = ["aaaaddddaaaaaaaaaaaa;|1$", "aaaaaaaaaaaaaaaadddd;|2$", "cccccccccccccccccccc;|3$"]
    plan = DeepConf(n=3, mode=Mode.OFFLINE, eta=1.0, window=4, measure=measure)
    assert solve(engine(texts), plan).answer == answer


@pytest.mark.pins("optillm deepconf window")
def test_a_trace_shorter_than_the_window_has_its_plain_mean():
    solution = solve(engine([trace("a", 1), trace("c", 2)]), DeepConf(n=2, mode=Mode.OFFLINE, eta=100.0))
    assert scores(solution) == {"0.0": 1.0, "0.1": 0.25}


@pytest.mark.pins("deepconf raw vote")
def test_equal_answers_vote_together_however_they_are_written():
    texts = [f"bbbb;|{answer}$" for answer in ("1/2", "0.5", "2/4", "3", "3")]
    solution = solve(engine(texts), OFFLINE)
    assert solution.answer in ("1/2", "0.5", "2/4")


WARM = [trace("a", 1), trace("a", 2), trace("b", 1), trace("b", 2)]
ONLINE = DeepConf(n=8, warmup=4, eta=50.0, window=4, chunk=4, beta=1.0)


def test_online_traces_stop_below_the_percentile_of_the_warm_up():
    texts = [*WARM, trace("c", 2, length=40), trace("a", 1), trace("b", 2, length=40)]
    run = engine(texts)
    solution = solve(run, ONLINE)
    # Percentile 50 of the lowest groups 8, 8, 4, 4.
    assert note(solution, "traces stop below")["threshold"] == 6.0
    assert stop_threshold([8.0, 8.0, 4.0, 4.0], 50.0) == 6.0
    stopped = {node.branch: node for node in solution.graph.nodes() if node.reason.startswith("stopped")}
    assert set(stopped) == {"0.4", "0.6", "0.7"}
    assert stopped["0.4"].reason == "stopped: group confidence 2 below 6"
    assert stopped["0.4"].length == 4, "the first full window already told, at the end of a chunk"
    assert scores(solution) == {"0.0": 1.0, "0.1": 1.0, "0.2": 0.0, "0.3": 0.0, "0.5": 1.0}
    assert note(solution, "5 traces finished")["stopped"] == 3
    assert solution.answer == "1"
    assert solution.usage.tokens == run.tokens_sampled == 5 * 12 + 3 * 4


def test_the_window_is_looked_at_after_each_chunk():
    texts = [*[trace("a", answer) for answer in (1, 2, 3, 4)], "aaaaadddddddddddddddddddd;|2$"]
    for chunk, length in ((1, 6), (4, 8), (7, 7), (16, 16)):
        plan = DeepConf(n=5, warmup=4, eta=50.0, window=4, chunk=chunk, beta=1.0)
        solution = solve(engine(texts, pace=uneven), plan)
        stopped = [node for node in solution.graph.nodes() if node.reason.startswith("stopped")]
        assert sum(node.length for node in stopped) == length


def test_a_warm_up_that_agrees_begins_no_other_trace():
    solution = solve(engine([trace("a", 1)]), ONLINE)
    assert note(solution, "the vote agrees after 4 finished of 4 traces")["share"] == 1.0
    assert len(solution.candidates) == 4


def test_a_leader_with_the_share_beta_ends_it():
    texts = [trace("a", 1), trace("a", 1), trace("a", 1), trace("d", 2), *[trace("a", 1)] * 12]
    plan = DeepConf(n=16, warmup=4, eta=100.0, window=4, beta=0.97, chunk=4)
    solution = solve(engine(texts), plan)
    # 24 / 25 after the warm-up, 40 / 41 two traces later; the others are let go.
    assert note(solution, "the vote agrees")["share"] == pytest.approx(40 / 41)
    left = {node.branch for node in solution.graph.nodes() if node.reason == "the vote agrees"}
    assert left == {f"0.{index}" for index in range(6, 16)}
    assert solution.answer == "1"


def test_warm_up_traces_below_the_threshold_do_not_vote():
    texts = [trace("a", 1), trace("b", 2), trace("b", 2), trace("b", 2)]
    solution = solve(engine(texts), DeepConf(n=4, warmup=4, eta=10.0, window=4))
    assert solution.answer == "1"
    assert scores(solution) == {"0.0": 1.0, "0.1": 0.0, "0.2": 0.0, "0.3": 0.0}


def test_a_sound_pass_ends_it_and_no_reward_model_is_asked():
    texts = [trace("d", 7), *[trace("a", 1)] * 3]
    solution = solve(engine(texts), OFFLINE, verifier=DigitVerifier("7"))
    assert (solution.reason, solution.answer) == (Reason.SOLVED, "7")
    unasked = solve(engine(texts, rewards={"prm": lambda text: 0.5}), OFFLINE)
    assert unasked.usage.scored_tokens == 0


def test_agreement_on_a_refuted_answer_ends_nothing():
    texts = [*[trace("a", 1)] * 6, trace("a", 7)]
    solution = solve(engine(texts), ONLINE, verifier=DigitVerifier("7"))
    assert (solution.reason, solution.answer) == (Reason.SOLVED, "7")


def test_it_says_what_does_not_fit():
    with pytest.raises(CapabilityError, match="needs statistics of each token's distribution"):
        solve(scripted(), DeepConf())
    with pytest.raises(UsageError, match="measure=tail: mode=online goes by the lowest group"):
        DeepConf(measure=Measure.TAIL)
    with pytest.raises(UsageError, match=r"strategy deepconf: eta=0\.0: give above 0 to 100"):
        DeepConf(eta=0.0)


def test_scales_keep_the_ratios():
    assert scale_of([3.0, 5.0]) == 8.0
    assert scale_of([8.0, 1.0]) == 8.0
    assert scale_of([0.3]) == 0.5
    assert scale_of([]) == scale_of([0.0, math.inf]) == 1.0


def test_share_of_the_leader():
    assert leading_share(["x", "y", "x", None], [2.0, 1.0, 1.0, 50.0]) == 0.75
    assert leading_share([None], [1.0]) == leading_share([], []) == 0.0


def unsure(prompt: str, seed: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choices("aabcd", k=rng.randint(1, 30))) + f";|{rng.randint(1, 3)}$"


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 12),
    warmup=st.integers(1, 6),
    mode=st.sampled_from(Mode),
    eta=st.floats(1.0, 100.0),
    window=st.integers(1, 20),
    chunk=st.integers(1, 9),
    tokens=st.none() | st.integers(1, 200),
    fail_at=st.none() | st.integers(0, 100),
    reproducible=st.booleans(),
)
def test_the_books_balance_whatever_ends_it(
    n, warmup, mode, eta, window, chunk, tokens, fail_at, reproducible
):
    run = ScriptedEngine(
        {"policy": following(unsure, PROMPT_LENGTH)}, stats=stats, fail_at=fail_at, pace=uneven
    )
    plan = DeepConf(n=n, warmup=warmup, mode=mode, eta=eta, window=window, chunk=chunk)
    solution = solve(run, plan, Budget(tokens=tokens), reproducible=reproducible)
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.graph.tokens_spent == solution.usage.tokens == run.tokens_sampled + forced
    assert solution.graph.flops_spent == solution.usage.flops
    assert tokens is None or solution.usage.tokens <= tokens
    assert run.live_sequences == 0
    stopped = {node.branch for node in solution.graph.nodes() if node.reason.startswith("stopped")}
    assert not stopped & set(scores(solution)), "a stopped trace does not vote"
    if tokens is None and fail_at is None:
        assert solution.answer in ("1", "2", "3")


@settings(max_examples=10, deadline=None)
@given(turns=st.integers(0, 120))
def test_cancelling_anywhere_leaks_nothing(turns: int):
    run = ScriptedEngine({"policy": following(unsure, PROMPT_LENGTH)}, stats=stats, pace=uneven)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(search, run, DeepConf(n=6, warmup=3, window=3, chunk=2))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
    assert run.live_sequences == 0


def test_one_seed_is_one_solution_at_any_speed():
    slow, fast = (
        solve(
            ScriptedEngine({"policy": following(unsure, PROMPT_LENGTH)}, stats=stats, pace=pace),
            DeepConf(n=10, warmup=4, eta=60.0, window=4, chunk=3),
            Budget(tokens=250),
        )
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)


def test_on_the_engine_confidences_are_the_models_own():
    async def main() -> Solution:
        async with Reasoner.open("reference", threads=1) as reasoner:
            plan = DeepConf(n=12, warmup=6, eta=50.0, window=8, chunk=4, temperature=1.0, top_p=1.0, beta=1.0)
            return await reasoner.solve("12 + 7*3 - 5*2 + 4", plan, Budget(tokens=2000), seed=2)

    solution = anyio.run(main)
    told = note(solution, "traces stop below")
    assert len(told["lowest"]) == 6
    assert told["threshold"] == stop_threshold(told["lowest"], 50.0)
    assert all(0.0 < value < 60.0 for value in told["lowest"])
    assert solution.answer is not None
    assert note(solution, f"{len(solution.candidates)} traces finished")["stopped"] >= 1
    assert solution.usage.scored_tokens == 0
