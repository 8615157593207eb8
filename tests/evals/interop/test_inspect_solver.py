"""Strategies in tasks of inspect_ai: as a solver and as a model."""

from pathlib import Path
from typing import Any

import pytest
from branchwise import Budget, solve

pytest.importorskip("inspect_ai", reason="needs branchwise[inspect]")

import inspect_ai  # pyright: ignore[reportMissingImports]
from branchwise.evals.interop.inspect_model import search
from inspect_ai import Task  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import MemoryDataset, Sample  # pyright: ignore[reportMissingImports]
from inspect_ai.event import InfoEvent, ModelEvent  # pyright: ignore[reportMissingImports]
from inspect_ai.log import EvalLog, read_eval_log  # pyright: ignore[reportMissingImports]
from inspect_ai.model import ContentReasoning  # pyright: ignore[reportMissingImports]
from inspect_ai.scorer import exact  # pyright: ignore[reportMissingImports]
from inspect_ai.solver import SolverSpec, generate, system_message, use_tools, user_message  # pyright: ignore[reportMissingImports]
from inspect_ai.tool import tool  # pyright: ignore[reportMissingImports]

SUMS = {"12 + 7*3 - 5": "28", "13 + 7*3 - 5": "29", "14 + 7*3 - 5": "30"}


def task(**fields: Any) -> Task:
    samples = [Sample(id=text, input=text, target=target) for text, target in SUMS.items()]
    return Task(dataset=MemoryDataset(samples), scorer=exact(), **fields)


def evaluated(what: Task, folder: Path, **options: Any) -> EvalLog:
    """The log of a run, as read back from its file."""
    (log,) = inspect_ai.eval(what, log_dir=str(folder), display="none", **options)
    return read_eval_log(log.location)


def test_a_strategy_solves_the_samples_of_a_task_under_its_budget(tmp_path: Path) -> None:
    solver = search(strategy="best_of_n(n=4)", budget="tokens=150", seed=3)
    log = evaluated(task(solver=solver, epochs=2), tmp_path, model=None)
    assert (log.status, log.error) == ("success", None)
    assert len(log.samples or []) == 6
    for sample in log.samples or []:
        seed = 3 + sample.epoch - 1
        own = solve(str(sample.id), strategy="best_of_n(n=4)", budget=Budget(tokens=150), seed=seed)
        told = sample.metadata["branchwise"]
        assert (told["answer"], told["seed"], told["budget"]) == (own.answer, seed, "tokens=150")
        assert told["usage"]["tokens"] == own.usage.tokens <= 150
        assert sample.output.completion == (own.answer or "")
        assert sample.scores is not None
        assert sample.scores["exact"].value == ("C" if own.answer == sample.target else "I")
        candidates = [event.data for event in sample.events if isinstance(event, InfoEvent)]
        assert candidates == own.as_json()["candidates"]


def test_usage_is_counted_by_inspect_itself(tmp_path: Path) -> None:
    log = evaluated(task(solver=search(strategy="greedy", budget="tokens=200")), tmp_path, model=None)
    told = [sample.metadata["branchwise"]["usage"] for sample in log.samples or []]
    counted = log.stats.model_usage["branchwise/reference"]
    assert counted.output_tokens == sum(usage["tokens"] for usage in told) > 0
    assert counted.input_tokens == sum(usage["prompt_tokens"] + usage["scored_tokens"] for usage in told)


def test_the_same_seed_gives_the_same_log(tmp_path: Path) -> None:
    def outputs() -> list[Any]:
        solver = search(strategy="best_of_n(n=8)", budget="tokens=300", seed=1)
        log = evaluated(task(solver=solver), tmp_path, model=None)
        return [
            (s.id, s.output.completion, s.metadata["branchwise"]["candidates"]) for s in log.samples or []
        ]

    assert outputs() == outputs()


def test_the_solver_is_found_by_its_name(tmp_path: Path) -> None:
    spec = SolverSpec("branchwise/search", {"strategy": "greedy", "budget": "tokens=200"})
    log = evaluated(task(), tmp_path, model=None, solver=spec)
    assert (log.status, log.eval.solver) == ("success", "branchwise/search")
    assert all("branchwise" in sample.metadata for sample in log.samples or [])


def test_a_strategy_is_a_model_too(tmp_path: Path) -> None:
    arguments = {"strategy": "greedy", "budget": "tokens=200", "seed": 0}
    log = evaluated(task(solver=generate()), tmp_path, model="branchwise/reference", model_args=arguments)
    assert log.status == "success"
    for sample in log.samples or []:
        own = solve(str(sample.id), strategy="greedy", budget=Budget(tokens=200), seed=0)
        assert sample.output.completion == own.answer
        (call,) = [event for event in sample.events if isinstance(event, ModelEvent)]
        assert call.output.usage is not None
        assert call.output.usage.output_tokens == own.usage.tokens
        thinking = call.output.message.content[0]
        assert isinstance(thinking, ContentReasoning)
        assert thinking.reasoning
        assert own.text.startswith(thinking.reasoning)


def test_a_model_without_a_seed_draws_one_for_each_epoch(tmp_path: Path) -> None:
    arguments = {"strategy": "greedy", "budget": "tokens=100"}
    log = evaluated(
        task(solver=generate(), epochs=2), tmp_path, model="branchwise/reference", model_args=arguments
    )
    seeds = {s.output.metadata["branchwise"]["seed"] for s in log.samples or [] if s.output.metadata}
    assert len(seeds) == 6


@tool
def bell():
    async def execute(times: int) -> str:
        """Ring.

        Args:
            times: How often.
        """
        return "ding" * times

    return execute


@pytest.mark.parametrize("kind", ["turns", "tools", "text"])
def test_what_a_search_cannot_read_is_an_error_of_the_sample(tmp_path: Path, kind: str) -> None:
    solvers = {
        "turns": [user_message("And then?"), search(strategy="greedy")],
        "tools": [use_tools(bell()), generate()],
        "text": [search(strategy="greedy")],
    }
    told = {
        "turns": "messages of user, user: a search reads one user message",
        "tools": "tools bell: a search calls none",
        "text": "cannot read it",
    }
    what = task(solver=solvers[kind])
    if kind == "text":
        what = Task(dataset=MemoryDataset([Sample(input="Hello?", target="Hi")]), solver=solvers[kind])
    log = evaluated(what, tmp_path, model="branchwise/reference", fail_on_error=False)
    messages = [sample.error.message for sample in log.samples or [] if sample.error is not None]
    assert len(messages) == len(what.dataset)
    assert all(told[kind] in message for message in messages), messages


def test_a_system_message_reaches_the_search(tmp_path: Path) -> None:
    solver = [system_message("Be brief."), search(strategy="greedy", budget="tokens=200")]
    log = evaluated(task(solver=solver), tmp_path, model=None)
    assert log.status == "success"
    for sample in log.samples or []:
        assert any("reads no system message" in note for note in sample.metadata["branchwise"]["notes"])
