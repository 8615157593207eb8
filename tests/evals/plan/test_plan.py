"""Plans: the real strategies and scheduler on a simulated machine."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from branchwise.engine.errors import CapacityError, UsageError
from branchwise.evals.plan.gpus import find_gpu
from branchwise.evals.plan.oracle import ANSWERS, END, OracleWriter, Writing, read_config
from branchwise.evals.plan.plan import Plan, Serving, Workload, make_plan
from branchwise.reasoning.budget import Budget
from branchwise.strategies.registry import describe
from hypothesis import given, settings
from hypothesis import strategies as st

BLOCK = 32
BUDGET = Budget(tokens=4096)


class Planner:
    """Plans on the small model, with its scorer where `scored`, and a draft of its own shape where
    `drafted`."""

    def __init__(self, config: Path, scorer: Path) -> None:
        self._configs = {
            "policy": read_config(str(config), "--model-config"),
            "prm": read_config(str(scorer), "--prm-config"),
            "draft": read_config(str(config), "--draft-config"),
        }

    def plan(
        self,
        *,
        gpu: str = "H200",
        scored: bool = False,
        drafted: bool = False,
        serving: Any = None,
        **workload: Any,
    ) -> Plan:
        roles = {"policy": True, "prm": scored, "draft": drafted}
        configs = {role: self._configs[role] for role, wanted in roles.items() if wanted}
        options = {"configs": configs, "machine": find_gpu(gpu), "block_size": BLOCK} | (serving or {})
        workload.setdefault("budget", BUDGET)
        return make_plan(Serving(**options), Workload(**workload))


@pytest.fixture(scope="session")
def planner(config_file: Path, scorer_file: Path) -> Planner:
    return Planner(config_file, scorer_file)


def test_a_plan_is_the_same_each_time(planner: Planner) -> None:
    options: dict[str, Any] = {
        "strategy": "beam(n=8, width=2)",
        "scored": True,
        "problems": 3,
        "step": "tokens:16",
        "writing": Writing(answer_tokens=100),
        "prompt_tokens": 64,
    }
    assert planner.plan(**options) == planner.plan(**options)


@settings(max_examples=8)
@given(n=st.integers(1, 24), prompt=st.integers(1, 300), new=st.integers(2, 80))
def test_the_peak_of_samples_is_one_prompt_and_the_answers(
    planner: Planner, n: int, prompt: int, new: int
) -> None:
    """The last token of an answer is never read: it has no KV."""
    found = planner.plan(
        strategy=f"best_of_n(n={n})", prompt_tokens=prompt, max_tokens=new, budget=Budget(tokens=n * new)
    )
    assert found.tokens == found.drawn == n * new
    assert found.steps == new
    assert found.rows == prompt + n * (new - 1)
    positions = prompt + new - 1
    blocks = prompt // BLOCK + n * (-(-positions // BLOCK) - prompt // BLOCK)
    spare = (
        n + 1
    )  # a block that a token would open next, and the prompt's last one while its children copy it
    assert blocks <= found.kv_positions // BLOCK <= blocks + spare


def test_a_budget_is_kept_to_the_token(planner: Planner) -> None:
    for strategy in ("best_of_n(n=7)", "greedy", "mcts(rollouts=8, width=2)"):
        scored = strategy.startswith("mcts")
        found = planner.plan(
            strategy=strategy, budget=Budget(tokens=501), scored=scored, step="tokens:32", problems=2
        )
        assert found.tokens <= 2 * 501


def test_a_faster_gpu_takes_less_time_for_the_same_search(planner: Planner) -> None:
    slow, fast = (planner.plan(strategy="best_of_n(n=32)", gpu=gpu) for gpu in ("L40S", "H200"))
    assert fast.seconds < slow.seconds
    assert (fast.tokens, fast.rows, fast.steps) == (slow.tokens, slow.rows, slow.steps)


def test_seconds_of_the_budget_are_the_machines(planner: Planner) -> None:
    whole = planner.plan(strategy="best_of_n(n=8)", problems=2)
    half = planner.plan(
        strategy="best_of_n(n=8)", problems=2, budget=Budget(tokens=4096, seconds=whole.seconds / 2)
    )
    assert half.reasons == {"deadline": 2}
    assert half.seconds == pytest.approx(whole.seconds / 2, rel=0.05)
    assert half.seconds >= whole.seconds / 2
    more = planner.plan(
        strategy="best_of_n(n=8)", problems=2, budget=Budget(tokens=4096, seconds=whole.seconds * 2)
    )
    assert more == msgspec.structs.replace(whole, reasons=more.reasons)
    assert "deadline" not in more.reasons


def test_problems_side_by_side_take_less_than_one_after_the_other(planner: Planner) -> None:
    one = planner.plan(strategy="best_of_n(n=4)", budget=Budget(tokens=512))
    eight = planner.plan(strategy="best_of_n(n=4)", budget=Budget(tokens=512), problems=8)
    assert eight.tokens == 8 * one.tokens
    assert one.seconds < eight.seconds < 8 * one.seconds
    assert eight.solved_quantile(0.5) <= eight.solved_quantile(0.95) <= eight.seconds


@pytest.mark.slow
def test_less_memory_than_the_search_wants_preempts_it(planner: Planner) -> None:
    roomy = planner.plan(strategy="best_of_n(n=16)", problems=4)
    position = roomy.memory.block_bytes["policy"] // BLOCK
    tight = planner.plan(
        strategy="best_of_n(n=16)", problems=4, serving={"kv_memory": 4000 * position, "max_model_len": 1500}
    )
    assert roomy.preemptions == 0 < tight.preemptions
    assert tight.kv_positions <= 4000 < roomy.kv_positions
    assert tight.seconds > roomy.seconds
    assert tight.tokens == roomy.tokens


def test_answers_that_agree_end_a_search_that_looks_for_it(planner: Planner) -> None:
    writing = Writing(answer_tokens=50, agree=1.0)
    options: dict[str, Any] = {"strategy": "esc(n=32, window=4)", "budget": Budget(tokens=8192)}
    agreeing = planner.plan(**options, writing=writing)
    differing = planner.plan(**options, writing=msgspec.structs.replace(writing, agree=0.0))
    assert agreeing.tokens < differing.tokens / 3


def test_a_scorer_is_part_of_time_and_memory(planner: Planner) -> None:
    options: dict[str, Any] = {
        "strategy": "best_of_n(n=8)", "budget": Budget(tokens=1024), "writing": Writing(answer_tokens=100)
    }  # fmt: skip
    alone, scored = planner.plan(**options), planner.plan(**options, scored=True)
    assert scored.tokens == alone.tokens
    assert scored.rows > alone.rows
    assert scored.seconds > alone.seconds
    assert scored.kv_bytes > alone.kv_bytes
    assert scored.memory.weights_bytes > alone.memory.weights_bytes


@pytest.mark.parametrize("name", [info.name for info in describe()])
def test_every_strategy_can_be_planned(planner: Planner, name: str) -> None:
    """With all models that one may need, on texts that end and sometimes agree."""
    found = planner.plan(
        strategy=name,
        budget=Budget(tokens=400),
        scored=True,
        drafted=True,
        prompt_tokens=40,
        step="tokens:16",
        writing=Writing(answer_tokens=40, agree=0.5),
    )
    assert 0 < found.tokens <= 400
    assert found.seconds > 0
    assert sum(found.reasons.values()) == 1


def test_what_does_not_fit_is_refused_in_one_line(planner: Planner) -> None:
    with pytest.raises(UsageError, match=r"do not hold .* of weights"):
        planner.plan(strategy="greedy", serving={"kv_memory": 10**12})
    with pytest.raises(CapacityError, match="prompt of 5000 tokens"):
        planner.plan(strategy="greedy", prompt_tokens=5000)


@settings(max_examples=20)
@given(mean=st.integers(2, 400), spread=st.floats(0, 1), seed=st.integers(0, 1 << 63))
def test_texts_end_behind_an_answer_at_a_length_of_the_spread(mean: int, spread: float, seed: int) -> None:
    writer = OracleWriter(Writing(answer_tokens=mean, spread=spread))
    before, tokens = -1, []
    while before != END:
        before = writer.token(seed, 10 + len(tokens), before, 10)
        tokens.append(before)
    assert max(2, round(mean * (1 - spread))) <= len(tokens) <= max(2, round(mean * (1 + spread)))
    assert 1 <= tokens[-2] <= ANSWERS
    assert all(token > ANSWERS for token in tokens[:-2])


def test_lengths_are_spread_evenly_around_the_mean() -> None:
    writer = OracleWriter(Writing(answer_tokens=200, spread=0.5))
    lengths = []
    for seed in range(2000):
        before, position = -1, 0
        while before != END:
            before = writer.token(seed, position, before, 0)
            position += 1
        lengths.append(position)
    assert sum(lengths) / len(lengths) == pytest.approx(200, rel=0.02)
    below = sum(length < 150 for length in lengths)
    assert below / len(lengths) == pytest.approx(0.25, abs=0.03)


def test_texts_without_a_length_never_end() -> None:
    writer = OracleWriter(Writing())
    assert all(writer.token(3, position, -1, 0) > ANSWERS for position in range(5000))
