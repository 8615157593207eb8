"""Judges and confidence on the real engine with tiny random chat models."""

import json
import math
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
import torch
from branchwise.engine.engine import Engine
from branchwise.engine.models.open import open_model
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.prompting import question
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.settle import Settler
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.verifiers.base import Candidate, Score, Verifier
from branchwise.verifiers.combine import AllOf
from branchwise.verifiers.confidence import ConfidenceVerifier, Measure
from branchwise.verifiers.judge import JudgeVerifier, Mode
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.vote import Select
from hypothesis import given, settings
from hypothesis import strategies as st
from support.searching import outside_engine
from support.tiny import save_model, save_tokenizer

PROBLEM = Problem(text="How many are 3 and 4?")
QUESTION = "Is it right?"
OPTIONS = ("Yes", "No", "Maybe not")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A policy, and a judge with another vocabulary; both as transformers models and as folders."""
    base = tmp_path_factory.mktemp("models")
    found: dict[str, Any] = {}
    for role, family, seed in (("policy", "Llama", 0), ("judge", "Qwen2", 5)):
        folder = base / role
        found[role] = save_model(folder, family, seed=seed, num_hidden_layers=1, max_position_embeddings=1024)
        if role == "judge":
            save_tokenizer(folder, extra=("<more>",))
        (folder / "branchwise.json").write_text(json.dumps({"profile": {"stop": ["<|im_end|>"]}}))
        found[f"{role} folder"] = folder
    return found


class Whole(Strategy, tag="whole_text", frozen=True, kw_only=True):
    """`n` texts of 20 tokens."""

    n: int = 2
    sampling: SamplingParams | None = None

    async def run(self, search: Search) -> None:
        async def write(branch: Branch) -> None:
            await branch.extend(Until.END, max_tokens=20, sampling=self.sampling)

        async with search.each(search.root.fork(self.n), write) as done:
            async for branch in done:
                await branch.evaluate()
                search.offer(branch)


def solve(
    models: dict[str, Any],
    strategy: Strategy,
    verifier: Verifier | None,
    budget: Budget | None = None,
    roles: Sequence[str] = ("policy", "judge"),
    **options: Any,
) -> Solution:
    settler = Settler()

    async def main() -> Solution:
        engine = await Engine.open_models(
            {role: models[f"{role} folder"] for role in roles},
            kv_memory=4 << 20,
            check=True,
            settle=settler.settle,
            due=settler.due,
            **options,
        )
        async with engine, Reasoner.over(engine, settler=settler) as reasoner:
            solution = await reasoner.solve(
                PROBLEM, strategy, budget or Budget(tokens=4000), seed=4, verifier=verifier
            )
            applied = anyio.Event()
            token = anyio.lowlevel.current_token()
            engine.post(lambda: anyio.from_thread.run_sync(applied.set, token=token))
            await applied.wait()
            assert all(memory.pool.owned == 0 for memory in engine.scheduler.memories.values())
        assert solution.graph.tokens_spent == solution.usage.tokens
        assert solution.graph.flops_spent == solution.usage.flops
        return solution

    return anyio.run(main)


class Chooses:
    """Keeps what the lease says."""

    name = "chooses"
    sound = False
    oracle = False
    step_scores = False
    models: tuple[str, ...] = ()

    def __init__(self, model: str) -> None:
        self.model = model
        self.raw: tuple[float, ...] | None = None
        self.shares: tuple[float, ...] | None = None

    async def score(self, candidate: Candidate) -> Score:
        lease = candidate.lease
        self.raw = await lease.choose(QUESTION, OPTIONS, model=self.model, normalise=False)
        self.shares = await lease.choose(QUESTION, OPTIONS, model=self.model)
        return Score()


def published(models: dict[str, Any], role: str) -> list[float]:
    """The options' probabilities by transformers, each in a forward pass of its own."""
    info = open_model(models[f"{role} folder"]).info
    prompt = list(question(info, QUESTION, think=False))
    found = []
    for option in OPTIONS:
        ids = info.tokenizer.encode(option)
        with torch.inference_mode():
            logprobs = models[role](torch.tensor([prompt + ids])).logits[0].log_softmax(-1)
        places = range(len(prompt) - 1, len(prompt) - 1 + len(ids))
        found.append(math.exp(sum(float(logprobs[p, t]) for p, t in zip(places, ids, strict=True))))
    return found


@pytest.mark.parametrize("role", ["policy", "judge"])
def test_options_have_the_probabilities_that_transformers_gives_them(
    models: dict[str, Any], role: str
) -> None:
    verifier = Chooses(role)
    solve(models, Whole(n=1), verifier)
    expected = published(models, role)
    assert verifier.raw == pytest.approx(expected, rel=1e-3)
    assert verifier.shares == pytest.approx([p / sum(expected) for p in expected], rel=1e-3)


def test_the_prompt_of_a_question_is_computed_and_paid_once(models: dict[str, Any]) -> None:
    info = open_model(models["judge folder"]).info
    plain = solve(models, Whole(n=1), None)
    judged = solve(models, Whole(n=1), Chooses("judge"))
    prompt = len(question(info, QUESTION, think=False))
    options = sum(len(info.tokenizer.encode(option)) - 1 for option in OPTIONS)
    rows = judged.usage.scored_tokens - plain.usage.scored_tokens
    assert rows == 2 * (prompt + options), "two questions; the last token of an option needs no row"


@pytest.mark.parametrize("mode", [Mode.VERDICT, Mode.CRITIQUE, Mode.SCORE])
def test_a_judge_scores_on_a_model_of_its_own(models: dict[str, Any], mode: Mode) -> None:
    judge = JudgeVerifier(mode, critiques=2, critique_tokens=12, floor=0.0)
    first = solve(models, Whole(n=3), judge, deterministic=True)
    assert all(candidate.score is not None for candidate in first.candidates)
    assert len({candidate.score for candidate in first.candidates}) > 1
    shapes: list[dict[str, Any]] = [{"max_step_tokens": 9}, {"block_size": 32}]
    for options in shapes:
        other = solve(models, Whole(n=3), judge, deterministic=True, **options)
        assert outside_engine(other) == outside_engine(first)


@settings(max_examples=12, deadline=None)
@given(
    tokens=st.integers(20, 220),
    flops=st.none() | st.integers(10**6, 10**8),
    mode=st.sampled_from([Mode.VERDICT, Mode.CRITIQUE]),
)
def test_books_balance_on_the_real_engine(models, tokens, flops, mode):
    judge = AllOf((JudgeVerifier(mode, critiques=1, critique_tokens=10, floor=0.0), ConfidenceVerifier()))
    budget = Budget(tokens=tokens, flops=flops)
    solution = solve(models, Whole(n=3), judge, budget)
    assert solution.usage.tokens <= tokens
    assert flops is None or solution.usage.flops <= flops
    assert solution.notes == ()


def test_a_knockout_takes_the_one_that_the_judge_prefers(models: dict[str, Any]) -> None:
    judge = JudgeVerifier(Mode.PAIRWISE, floor=0.0)
    strategy = BestOfN(n=4, select=Select.KNOCKOUT)
    solution = solve(models, strategy, judge, Budget(tokens=600))
    again = solve(models, strategy, judge, Budget(tokens=600))
    assert solution.answer == again.answer
    assert solution.reason in (Reason.EXHAUSTED, Reason.BUDGET)


@pytest.mark.parametrize("measure", list(Measure))
def test_statistics_reach_the_verifier_whatever_the_sampling(
    models: dict[str, Any], measure: Measure
) -> None:
    for sampling in (None, SamplingParams(temperature=0.7)):
        verifier = ConfidenceVerifier(measure, window=5, top_k=8)
        solution = solve(models, Whole(n=2, sampling=sampling), verifier, roles=("policy",))
        assert all(0.0 < (candidate.score or 0.0) <= 1.0 for candidate in solution.candidates)


def test_the_judge_has_an_option_of_its_own(models: dict[str, Any]) -> None:
    async def main() -> Solution:
        policy, judge = str(models["policy folder"]), str(models["judge folder"])
        async with Reasoner.open(policy, judge=judge, kv_memory=4 << 20) as reasoner:
            assert set(reasoner.models) == {"policy", "judge"}
            return await reasoner.solve(
                PROBLEM, Whole(n=4), Budget(tokens=400), seed=1, verifier="judge(mode=score, floor=0)"
            )

    solution = anyio.run(main)
    assert any(candidate.score is not None for candidate in solution.candidates)
    [scores] = {tuple(node.scores) for node in solution.graph.nodes() if node.scores}
    assert scores == ("judge(mode=score, floor=0.0)",)
