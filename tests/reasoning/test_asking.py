"""What a verifier asks a model: exact probabilities, metered tokens, own paths, nothing left over."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.sampling.detail import TokenStats
from branchwise.engine.sampling.params import SamplingParams
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import Node
from branchwise.reasoning.pairing import check_reads
from branchwise.reasoning.solution import Reason, Solution
from branchwise.reasoning.source import ModelSource
from branchwise.strategies.base import Search, Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.verifiers.base import Candidate, Score
from branchwise.verifiers.combine import AllOf, AnyOf
from branchwise.verifiers.confidence import ConfidenceVerifier, Measure
from branchwise.verifiers.judge import JudgeVerifier, Mode, Role
from branchwise.verifiers.vote import Select
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import PLAIN, ScriptedEngine, following
from support.searching import (
    PROMPT_LENGTH,
    DigitVerifier,
    Samples,
    outside_engine,
    search,
    solve,
    uneven,
    writer,
)

JUDGE_TEXT = "it is fine$"


def likely(model: str, before: str, character: str) -> float:
    """The end of the judged text decides; each character of an option counts."""
    rng = random.Random(f"{model}{before[-40:]}{character}")
    return math.log(0.05 + 0.9 * rng.random())


def scripted(**options) -> ScriptedEngine:
    """A policy that writes solutions to the task and prose to everything else; a judge that writes prose."""
    solving = following(writer, PROMPT_LENGTH)

    def policy(text: str, seed: int) -> str:
        return solving(text, seed) if text.startswith("Qtask:") else prose(text, seed)

    def prose(text: str, seed: int) -> str:
        written = len(text[text.rindex(":") + 1 :].removeprefix("|"))
        return (f"{seed % 100} " + JUDGE_TEXT)[written:]

    options = {"max_model_len": 4000, "logprob": likely, **options}
    return ScriptedEngine({"policy": policy, "judge": prose}, **options)


class Asks:
    """A verifier that keeps what it was told."""

    name = "asks"
    sound = False
    oracle = False
    step_scores = False
    models: tuple[str, ...] = ()

    def __init__(
        self, *, model: str = "judge", options: Sequence[str] = ("Yes", "No"), writes: int = 0
    ) -> None:
        self.model = model
        self.options = options
        self.writes = writes
        self.chosen: list[tuple[float, ...] | None] = []
        self.written: list[str | None] = []

    async def score(self, candidate: Candidate) -> Score:
        prompt = f"Is {candidate.answer} right"
        for _ in range(self.writes):
            self.written.append(
                await candidate.lease.write(prompt, model=self.model, max_tokens=self.writes * 10)
            )
        self.chosen.append(await candidate.lease.choose(prompt, self.options, model=self.model))
        chosen = self.chosen[-1]
        return Score(detail="budget") if chosen is None else Score(value=chosen[0])


def asides(solution: Solution) -> list[Node]:
    return [node for node in solution.graph.nodes() if node.id.startswith("-1.")]


def forced(solution: Solution) -> int:
    return sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")


def check_books(solution: Solution, engine: ScriptedEngine, budget: Budget) -> None:
    assert solution.graph.tokens_spent == solution.usage.tokens
    assert solution.graph.flops_spent == solution.usage.flops
    assert solution.usage.tokens == engine.tokens_sampled + forced(solution)
    assert budget.tokens is None or solution.usage.tokens <= budget.tokens
    assert budget.flops is None or solution.usage.flops <= budget.flops
    assert engine.live_sequences == 0


@pytest.mark.parametrize("options", [("Yes", "No"), ("A", "B", "CD"), tuple("0123456789")])
def test_options_have_the_probabilities_of_all_their_tokens(options: tuple[str, ...]) -> None:
    verifier = Asks(options=options)
    solve(scripted(), Samples(n=1), verifier=verifier)
    [chosen] = verifier.chosen
    assert chosen is not None
    before = f"QIs {writer_answer()} right:|"
    raw = [
        math.exp(math.fsum(likely("judge", before + option[:i], option[i]) for i in range(len(option))))
        for option in options
    ]
    assert chosen == pytest.approx([p / sum(raw) for p in raw])


def writer_answer() -> str:
    """What the one sample of seed 0 answers."""
    return str(solve(scripted(), Samples(n=1)).answer)


def test_the_judge_is_the_policy_where_none_is_open() -> None:
    engine = ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)}, max_model_len=400)
    verifier = Asks()
    solve(engine, Samples(n=1), verifier=verifier)
    assert verifier.chosen == [pytest.approx((1 / (1 + math.exp(0.5)), 1 / (1 + math.exp(-0.5))), abs=0.3)]


def test_each_text_is_another_one_and_none_holds_its_end_id() -> None:
    verifier = Asks(writes=3)
    solve(scripted(), Samples(n=1), verifier=verifier)
    assert len(set(verifier.written)) == 3
    assert all(text is not None and text.endswith("it is fine") for text in verifier.written)


def test_sampled_and_appended_tokens_count_and_prompts_do_not() -> None:
    plain = solve(scripted(), Samples(n=2))
    asked = solve(scripted(), Samples(n=2), verifier=Asks(writes=1))
    spent = sum(node.tokens_spent for node in asides(asked))
    options = 2 * (len("Yes") + len("No"))
    texts = sum(node.length for node in asides(asked) if node.kind == "step")
    assert asked.usage.tokens - plain.usage.tokens == spent == options + texts
    assert asked.usage.flops > plain.usage.flops
    assert all(node.state == "pruned" or node.state == "finished" for node in asides(asked))


def test_paths_follow_from_the_branch_that_is_judged() -> None:
    asked = solve(scripted(), Samples(n=2), verifier=Asks(writes=2))
    roots = sorted(node.id for node in asides(asked) if node.kind == "prompt")
    assert roots == [f"-1.0.{child}.-1.{count}#0" for child in (0, 1) for count in (0, 1, 2)]
    kinds = [node.kind for node in asked.graph.nodes()]
    assert kinds[0] == "prompt"
    assert next(iter(asked.graph.nodes())).branch == "0", "the search itself comes first"


def test_no_question_on_a_branch_has_the_path_of_one_on_its_children() -> None:
    class Deeper(Strategy, tag="deeper", frozen=True, kw_only=True):
        async def run(self, search: Search) -> None:
            (branch,) = search.root.fork(1)
            while not branch.complete and branch.depth < 3:
                await branch.extend()
                await branch.evaluate()
                branch = branch.fork(3)[0]
            search.offer(branch)

    engine = scripted()
    solution = solve(engine, Deeper(), verifier=JudgeVerifier(Mode.SCORE))
    forced = [node for node in solution.graph.nodes() if node.kind == "forced"]
    assert len(forced) == 30, "three questions with ten answers each"
    assert solution.graph.tokens_spent == solution.usage.tokens
    assert solution.graph.flops_spent == solution.usage.flops


@pytest.mark.parametrize("tokens", [1, 20, 40, 60, 100])
def test_a_refused_question_is_none_and_no_error(tokens: int) -> None:
    engine, verifier, budget = scripted(), Asks(writes=1), Budget(tokens=tokens, answer_reserve=0)
    solution = solve(engine, Samples(n=3), budget, verifier=verifier)
    check_books(solution, engine, budget)
    assert solution.reason is Reason.BUDGET
    assert solution.notes == ()
    assert None in verifier.chosen or not verifier.chosen


def test_the_reserve_is_for_answers_not_for_judges() -> None:
    engine = scripted()
    budget = Budget(tokens=200, answer_reserve=150)
    solution = solve(engine, Samples(n=1), budget, verifier=Asks(writes=9))
    check_books(solution, engine, budget)
    assert solution.answer is not None
    assert sum(node.tokens_spent for node in asides(solution)) <= 200 - len("abcd")


def test_a_question_that_the_context_cannot_hold_is_none() -> None:
    verifier = Asks()
    solution = solve(scripted(max_model_len=70), Samples(n=1), verifier=JudgeVerifier())
    assert solution.score is None
    assert solution.notes == ()
    solve(scripted(max_model_len=16), Samples(n=1), verifier=verifier)
    assert verifier.chosen == [None]


@pytest.mark.parametrize("options", [("Yes",), ("Yes", "Yes"), ("Yes", "")])
def test_a_question_without_a_choice_fails_the_verifier_not_the_search(options: tuple[str, ...]) -> None:
    solution = solve(scripted(), Samples(n=2), verifier=Asks(options=options))
    assert solution.answer is not None
    [note] = solution.notes
    assert note.startswith("verifier asks failed: UsageError: choose of")


JUDGES = {
    "verdict": lambda: JudgeVerifier(),
    "critique": lambda: JudgeVerifier(Mode.CRITIQUE, critiques=2, critique_tokens=30),
    "score": lambda: JudgeVerifier(Mode.SCORE),
    "all_of": lambda: AllOf((DigitVerifier("7"), JudgeVerifier(model=Role.POLICY))),
    "any_of": lambda: AnyOf((DigitVerifier("7"), JudgeVerifier(Mode.CRITIQUE, critiques=1))),
}


@settings(max_examples=60)
@given(
    tokens=st.integers(1, 500),
    flops=st.none() | st.integers(1, 3_000_000),
    kv_tokens=st.none() | st.integers(1, 600),
    n=st.integers(1, 6),
    judge=st.sampled_from(sorted(JUDGES)),
    reproducible=st.booleans(),
    fail_at=st.none() | st.integers(0, 200),
    fail_score_at=st.none() | st.integers(1, 12),
)
def test_books_balance_under_any_budget_and_failure(
    tokens, flops, kv_tokens, n, judge, reproducible, fail_at, fail_score_at
):
    engine = scripted(pace=uneven, fail_at=fail_at, fail_score_at=fail_score_at)
    budget = Budget(tokens=tokens, flops=flops, kv_tokens=kv_tokens)
    solution = solve(engine, Samples(n=n), budget, verifier=JUDGES[judge](), reproducible=reproducible)
    check_books(solution, engine, budget)
    if kv_tokens is not None:
        assert solution.usage.engine["kv_peak_tokens"] <= kv_tokens


@settings(max_examples=40)
@given(turns=st.integers(0, 600), judge=st.sampled_from(sorted(JUDGES)), reproducible=st.booleans())
def test_cancelling_at_any_point_leaves_nothing(turns, judge, reproducible):
    engine = scripted(pace=uneven)

    async def main() -> Solution:
        interrupt = anyio.Event()
        found: list[Solution] = []

        async def later() -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            interrupt.set()

        async with anyio.create_task_group() as group:
            group.start_soon(later)
            found.append(
                await search(
                    engine,
                    Samples(n=4),
                    verifier=JUDGES[judge](),
                    reproducible=reproducible,
                    interrupt=interrupt,
                )
            )
            group.cancel_scope.cancel()
        return found[0]

    solution = anyio.run(main)
    check_books(solution, engine, Budget(tokens=10_000))


@settings(max_examples=15)
@given(judge=st.sampled_from(sorted(JUDGES)), tokens=st.integers(30, 1500), n=st.integers(1, 6))
def test_one_seed_gives_one_search_whatever_the_pace(judge, tokens, n):
    budget = Budget(tokens=tokens)
    first = solve(scripted(), Samples(n=n), budget, verifier=JUDGES[judge]())
    second = solve(scripted(pace=uneven), Samples(n=n), budget, verifier=JUDGES[judge]())
    assert outside_engine(first) == outside_engine(second)


def test_a_model_that_does_not_think_is_asked_alike() -> None:
    verifier = Asks(writes=1)
    solution = solve(scripted(profile=PLAIN), Samples(n=2), verifier=verifier)
    assert None not in verifier.chosen
    assert solution.score is not None


def test_judges_sample_as_they_are_asked_to() -> None:
    """The sampling goes to the engine as given; statistics that another verifier wants are added."""
    seen: list[SamplingParams] = []

    class Seen(Asks):
        async def score(self, candidate: Candidate) -> Score:
            await candidate.lease.write("x", max_tokens=4, sampling=SamplingParams(temperature=0.25))
            return Score()

    engine = scripted()
    extend = engine.extend

    async def watched(seq, params, meter, on_tokens=None):
        seen.append(params.sampling)
        return await extend(seq, params, meter, on_tokens)

    engine.extend = watched
    solve(engine, Samples(n=1), verifier=Seen())
    assert seen[-1] == SamplingParams(temperature=0.25)


def prefers_large(model: str, before: str, character: str) -> float:
    """The judge is for the larger of two answers, and for the first place where it cannot tell."""
    if "Solution A:" not in before:
        return -0.5
    first, second = (before.split(f"Solution {place}:\n")[1][0] for place in "AB")
    return math.log(0.8 if (character == "A") == (first >= second) else 0.2)


@pytest.mark.parametrize("reproducible", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_knockout_answers_with_the_one_that_the_judge_prefers(seed: int, reproducible: bool) -> None:
    engine = scripted(logprob=prefers_large, pace=uneven)
    strategy = BestOfN(n=7, select=Select.KNOCKOUT)
    judge = JudgeVerifier(Mode.PAIRWISE)
    solution = solve(engine, strategy, verifier=judge, seed=seed, reproducible=reproducible)
    answers = [candidate.answer for candidate in solution.candidates]
    assert solution.answer == max(answer for answer in answers if answer)
    check_books(solution, engine, Budget(tokens=10_000))
    matches = len(set(answers)) - 1
    assert sum(node.kind == "prompt" for node in asides(solution)) == 2 * matches, "both orders, once each"


def test_a_budget_that_ends_in_the_knockout_keeps_the_earlier_ones() -> None:
    for tokens in range(90, 260, 17):
        engine = scripted(logprob=prefers_large)
        budget = Budget(tokens=tokens)
        solution = solve(
            engine, BestOfN(n=4, select=Select.KNOCKOUT), budget, verifier=JudgeVerifier(Mode.PAIRWISE)
        )
        check_books(solution, engine, budget)
        assert solution.answer is not None


@pytest.mark.parametrize("verifier", [None, DigitVerifier("7")])
def test_a_knockout_needs_a_verifier_that_compares(verifier: DigitVerifier | None) -> None:
    with pytest.raises(
        CapabilityError, match=r"select=knockout needs a verifier that compares two candidates"
    ):
        solve(scripted(), BestOfN(n=4, select=Select.KNOCKOUT), verifier=verifier)


def test_confidence_is_refused_where_the_engine_tells_no_statistics() -> None:
    verifier = AllOf((DigitVerifier("7"), ConfidenceVerifier()))
    with pytest.raises(CapabilityError, match=r"needs statistics of each token's distribution, which this"):
        solve(scripted(), Samples(n=1), verifier=verifier)
    solve(scripted(), Samples(n=1), verifier=ConfidenceVerifier(Measure.LOGPROB))


def test_confidence_scores_by_the_statistics_of_the_sampled_tokens() -> None:
    engine = scripted(stats=lambda text, seed: TokenStats(1.0, 1.0, float(len(text) - 1)))
    solution = solve(engine, Samples(n=1), verifier=ConfidenceVerifier(Measure.MEAN))
    [candidate] = solution.candidates
    places = range(PROMPT_LENGTH, PROMPT_LENGTH + candidate.tokens)
    mean = sum(places) / len(places)
    assert candidate.score == pytest.approx(mean / (1 + mean))


def test_oracles_among_the_members_are_refused_for_selection() -> None:
    oracle = DigitVerifier("7")
    oracle.oracle = True
    nested = AllOf((AnyOf((JudgeVerifier(), oracle)), DigitVerifier("7")))
    with pytest.raises(UsageError, match=r"recomputes the answer, which no selection may use: give --oracle"):
        solve(scripted(), Samples(n=1), verifier=nested)
    solution = solve(scripted(), Samples(n=2), verifier=nested, oracle=True)
    assert solution.notes == (f"oracle: verifier {nested.name} recomputes the answer",)


def test_a_judge_is_not_asked_of_a_policy_that_reads_its_own_tasks_only() -> None:
    backend = scripted()
    source = ModelSource(name="small", policy=Path(), tasks_only=True)
    del backend._scripts["judge"]
    with pytest.raises(
        CapabilityError, match=r"reads only its own tasks: give a model that reads text with --j"
    ):
        check_reads(AllOf((JudgeVerifier(),)), source, backend)
    check_reads(DigitVerifier("7"), source, backend)
    check_reads(JudgeVerifier(), source, scripted())
    for model in (Role.POLICY, Role.DRAFT):
        with pytest.raises(CapabilityError):
            check_reads(JudgeVerifier(model=model), source, scripted())
