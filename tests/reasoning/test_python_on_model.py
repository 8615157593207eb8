"""The Python interface on the shipped policy: streams, sessions, conversations and many problems at once."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeGuard

import anyio
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.errors import UsageError
from branchwise.engine.text.stop import Until
from branchwise.engine.text.tokenizer import Message
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import BranchOpened, Ended, Event, Offered, StepDone, Wrote
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.shared import SharedBudget
from branchwise.reasoning.solution import Solution
from branchwise.reasoning.source import find_source
from branchwise.strategies.base import Branch
from branchwise.strategies.best_of_n import BestOfN
from support.events import told_texts
from support.searching import outside_engine

COUNTDOWN = "Use 3, 7, 12 and 18 to make 45"
ARITHMETIC = "12 + 7*3 - 5*2 + 4"
STRATEGY = BestOfN(n=6, stop_on_verified=False)
BUDGET = Budget(tokens=420)


@asynccontextmanager
async def opened(model: str = "reference", **options: Any) -> AsyncIterator[Reasoner]:
    """A model that is open; whatever was done with it, its engine holds nothing at the end."""
    async with Reasoner.open(model, **options) as reasoner:
        yield reasoner
        engine, free = reasoner.backend, anyio.Event()
        assert isinstance(engine, Engine)
        token = anyio.lowlevel.current_token()
        engine.post(lambda: anyio.from_thread.run_sync(free.set, token=token))
        await free.wait()
        assert not engine.scheduler.family.sequences
        pools = [memory.pool for memory in engine.scheduler.memories.values()]
        assert [(pool.owned, pool.pinned_cached) for pool in pools] == [(0, 0)] * len(pools)


def is_solution(result: Solution | Exception) -> TypeGuard[Solution]:
    return isinstance(result, Solution)


@pytest.mark.anyio
async def test_a_stream_tells_all_and_changes_nothing() -> None:
    heard: list[Event] = []
    async with opened() as reasoner:
        plain = await reasoner.solve(COUNTDOWN, STRATEGY, BUDGET, seed=3)
        async with reasoner.stream(
            COUNTDOWN, STRATEGY, BUDGET, seed=3, deltas=True, on_event=heard.append
        ) as stream:
            events = [event async for event in stream]
    assert outside_engine(stream.solution) == outside_engine(plain)
    assert events == heard
    assert isinstance(events[0], BranchOpened)
    assert isinstance(events[-1], Ended)
    texts = told_texts(events)
    offered = [event for event in events if isinstance(event, Offered)]
    assert texts[offered[-1].incumbent or ""] == stream.solution.text
    for branch in texts:
        steps = [event.text for event in events if isinstance(event, StepDone) and event.branch == branch]
        assert texts[branch] == "".join(steps)
    assert sum(isinstance(event, Wrote) for event in events) > sum(isinstance(e, StepDone) for e in events)


@pytest.mark.anyio
async def test_leaving_a_stream_or_a_session_early_frees_everything() -> None:
    async with opened() as reasoner:
        async with reasoner.stream(COUNTDOWN, STRATEGY, BUDGET, seed=3, deltas=True) as stream:
            async for event in stream:
                if event.tokens_spent > 50:
                    break
        with pytest.raises(UsageError, match="left before its search ended"):
            _ = stream.solution
        async with reasoner.session(COUNTDOWN, BUDGET, seed=3) as root, anyio.create_task_group() as group:
            for branch in root.fork(4):
                group.start_soon(branch.extend, Until.ANSWER)
            await root.append("")
            group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_own_search_code_finds_a_verified_answer() -> None:
    async with opened() as reasoner, reasoner.session(COUNTDOWN, Budget(tokens=4000), seed=1) as root:
        branches = root.fork(48)

        async def finish(branch: Branch) -> None:
            await branch.extend(Until.ANSWER)
            await branch.evaluate()

        async with anyio.create_task_group() as group:
            for branch in branches:
                group.start_soon(finish, branch)
        assert any(branch.verified for branch in branches)
        assert root.budget.tokens_spent == root.graph.tokens_spent <= 4000


@pytest.mark.anyio
async def test_many_problems_of_two_tenants_under_one_budget() -> None:
    shared = SharedBudget(tokens=900)
    async with opened() as reasoner:
        results = await reasoner.solve_many(
            [COUNTDOWN, ARITHMETIC, "no problem of this model", ARITHMETIC],
            STRATEGY,
            Budget(tokens=400, parent=shared),
            tenants=["a", "b", "a", "a"],
            seed=0,
        )
    solutions = [result for result in results if is_solution(result)]
    assert [is_solution(result) for result in results] == [True, True, False, True]
    assert sum(solution.usage.tokens for solution in solutions) == shared.tokens_spent <= 900


@pytest.mark.anyio
async def test_a_conversation_on_a_model_that_reads_single_problems() -> None:
    """Each turn is solved for itself, and the solution says so."""
    async with opened() as reasoner, reasoner.conversation() as conversation:
        first = await conversation.ask(ARITHMETIC, STRATEGY, BUDGET, seed=0)
        second = await conversation.ask(ARITHMETIC, STRATEGY, BUDGET, seed=0)
        assert conversation.messages[:2] == (
            Message("user", ARITHMETIC),
            Message("assistant", first.conclusion),
        )
        assert not any("earlier turns" in note for note in first.notes)
        assert any("earlier turns" in note for note in second.notes)
        assert second.usage.prompt_tokens == first.usage.prompt_tokens


@pytest.fixture
def chat_model(tmp_path: Path) -> str:
    """The policy's weights with a template that puts all turns into the prompt."""
    folder = tmp_path / "chat"
    shutil.copytree(find_source("reference").policy, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{{ bos_token }}{% for message in messages %}{{ message.content }};{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.anyio
async def test_a_second_turn_finds_the_first_one_computed_and_writes_what_it_would_without(
    chat_model: str,
) -> None:
    options = {"seed": 2, "max_tokens": 40}
    async with (
        opened(chat_model, reproducible=True, deterministic=True) as reasoner,
        reasoner.conversation(system="") as conversation,
    ):
        await conversation.ask(COUNTDOWN, STRATEGY, BUDGET, **options)
        earlier, kept = conversation.messages, conversation.kept_positions
        assert kept
        warm = await conversation.ask(ARITHMETIC, STRATEGY, BUDGET, **options)
    async with (
        opened(chat_model, reproducible=True, deterministic=True) as reasoner,
        reasoner.conversation(system="", messages=earlier) as conversation,
    ):
        cold = await conversation.ask(ARITHMETIC, STRATEGY, BUDGET, **options)
    assert outside_engine(warm) == outside_engine(cold)
    assert warm.usage.engine["cached_tokens"] == kept
    assert cold.usage.engine["cached_tokens"] == 0
    assert cold.usage.engine["prefill_tokens"] - warm.usage.engine["prefill_tokens"] == kept
