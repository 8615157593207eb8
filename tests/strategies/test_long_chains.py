"""What holds for all strategies of long chains: any end leaves the best so far, and the reference model
runs them."""

from collections.abc import Iterator

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.aggregate import Aggregate
from branchwise.strategies.base import Strategy
from branchwise.strategies.chain import Chain
from branchwise.strategies.refine import Refine
from support.scripted import ScriptedEngine
from support.searching import search, solve, uneven

ALL = [
    Chain(waits=2),
    Chain(max_think=9),
    Chain(probe_every=4, tau=2, probe="so|"),
    Refine(rounds=3),
    Aggregate(n=4, k=2, rounds=2),
]


def script(text: str, seed: int) -> str:
    """Three steps a round, an answer by the seed."""
    thought, end, said = text.partition("|")
    if end:
        return f"{seed % 5}$"[len(said) :] or "$"
    return "ab;ab;ab;|"[min(9, len(thought.rpartition(":")[2].rpartition("W")[2]))]


def engine(fail_at: int | None = None) -> ScriptedEngine:
    return ScriptedEngine({"policy": script}, max_model_len=6000, pace=uneven, fail_at=fail_at)


def balanced(solution: Solution, run: ScriptedEngine) -> None:
    """All that was spent is on the nodes, and nothing is left in the engine."""
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.usage.tokens == solution.graph.tokens_spent == run.tokens_sampled + forced
    assert solution.graph.flops_spent == solution.usage.flops
    assert run.live_sequences == 0


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: type(strategy).__name__)
@pytest.mark.parametrize("turns", [0, 30, 150, 600, 2000])
def test_an_interrupt_returns_the_best_so_far(strategy: Strategy, turns: int) -> None:
    async def main() -> tuple[Solution, ScriptedEngine]:
        run = engine()
        interrupt = anyio.Event()
        solution = None

        async def later() -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            interrupt.set()

        async with anyio.create_task_group() as group:
            group.start_soon(later)
            solution = await search(run, strategy, interrupt=interrupt)
        assert solution is not None
        return solution, run

    solution, run = anyio.run(main)
    assert solution.reason in (Reason.CANCELLED, Reason.EXHAUSTED)
    assert (solution.answer is None) == (solution.candidates == ())
    balanced(solution, run)


@pytest.mark.parametrize("strategy", ALL, ids=lambda strategy: type(strategy).__name__)
@pytest.mark.parametrize("fail_at", [1, 8, 15, 40])
def test_a_failure_keeps_what_was_offered_before_and_beside_it(strategy: Strategy, fail_at: int) -> None:
    run = engine(fail_at)
    solution = solve(run, strategy)
    balanced(solution, run)
    if solution.candidates:
        assert solution.answer is not None
    else:
        assert (solution.reason, solution.error) == (Reason.FAILED, "injected failure")


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def reference(portal: BlockingPortal) -> Iterator[Reasoner]:
    with portal.wrap_async_context_manager(Reasoner.open(model="reference", threads=1)) as reasoner:
        yield reasoner


@pytest.mark.parametrize("text", ["Use 3, 7, 12 and 18 to make 45", "12 + 7*3 - 5"])
@pytest.mark.parametrize(
    "strategy",
    [
        Chain(waits=2),
        Chain(min_think=60, max_think=90),
        Chain(probe_every=12, tau=2),
        Chain(no_think=True),
        Refine(),
        Aggregate(),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_the_reference_model_runs_it_within_its_budget(
    portal: BlockingPortal, reference: Reasoner, strategy: Strategy, text: str
) -> None:
    async def one() -> Solution:
        return await reference.solve(text, strategy, Budget(tokens=200), seed=1)

    solution = portal.call(one)
    assert solution.usage.tokens == solution.graph.tokens_spent <= 200
    assert solution.candidates
    if not isinstance(strategy, Chain):
        return
    (told,) = [note for note in solution.graph.notes if note["note"] == "thinking"]
    assert told["within"] in (True, None)
    assert solution.text.count("<wait>") >= told["waits"]
