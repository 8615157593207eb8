"""A reasoner that callers off its loop share."""

import time
from collections.abc import Iterator

import anyio
import pytest
from branchwise import Budget, solve
from branchwise.engine.errors import ModelLoadError
from branchwise.evals.interop.reasoner_thread import ReasonerThread, shared_reasoner
from branchwise.evals.interop.texts import Parts, parts_of
from branchwise.reasoning.cli.requests import Opening
from branchwise.verifiers.problem import Problem

PROBLEM = "Use 3, 7 and 12 to make 43"


@pytest.fixture(scope="module")
def thread() -> Iterator[ReasonerThread]:
    opened = ReasonerThread(Opening())
    yield opened
    opened.close()


@pytest.mark.anyio
async def test_a_search_from_another_loop_equals_one_of_its_own(thread: ReasonerThread) -> None:
    options = {"strategy": "best_of_n(n=4)", "budget": Budget(tokens=300), "seed": 3}
    found = await thread.solve(Problem(text=PROBLEM), **options)
    own = await anyio.to_thread.run_sync(lambda: solve(PROBLEM, **options))
    assert (found.answer, found.text, found.usage.tokens) == (own.answer, own.text, own.usage.tokens)
    assert found.graph.to_node_link() == own.graph.to_node_link()
    assert thread.reasoner.reproducible


@pytest.mark.anyio
async def test_cancelling_the_caller_ends_the_search(thread: ReasonerThread) -> None:
    options = {"strategy": "best_of_n(n=4096, stop_on_verified=false)", "budget": Budget(tokens=10**6)}
    with anyio.move_on_after(0.3) as scope:
        await thread.solve(Problem(text=PROBLEM), **options)
    assert scope.cancelled_caught
    started = time.monotonic()
    after = await thread.solve(Problem(text=PROBLEM), strategy="greedy", budget=Budget(tokens=300), seed=0)
    assert after.usage.tokens > 0
    assert time.monotonic() - started < 10


def test_a_model_that_cannot_be_opened_is_told_to_who_asked() -> None:
    with pytest.raises(ModelLoadError, match="nowhere"):
        ReasonerThread(Opening(model="./nowhere"))


def test_one_opening_is_opened_once() -> None:
    assert shared_reasoner(Opening()) is shared_reasoner(Opening(model="reference"))


def test_a_text_is_parted_at_the_end_of_thinking_without_end_tokens(thread: ReasonerThread) -> None:
    policy = thread.reasoner.models["policy"]
    whole = solve("12 + 7*3 - 5", strategy="greedy", budget=Budget(tokens=300), seed=0)
    parts = parts_of(whole, policy)
    assert parts.conclusion == whole.answer
    assert whole.text == f"{parts.thinking}</think>{parts.conclusion}<eos>"
    cut = solve("12 + 7*3 - 5", strategy="greedy", budget=Budget(tokens=4, answer_reserve=0), seed=0)
    assert parts_of(cut, policy) == Parts(cut.text, "")
