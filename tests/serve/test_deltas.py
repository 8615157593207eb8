"""What a stream sends is what the answer says: for any budget, strategy and stop string."""

import anyio
import pytest
from branchwise import Budget, Event, Reasoner
from branchwise.strategies.grammar import parse_strategy
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from branchwise.reasoning.events import Wrote
from branchwise.serve.deltas import Delta, PathDeltas
from branchwise.serve.stops import cut_at

PROBLEMS = ("Use 3, 7 and 12 to make 43", "12 + 7*3 - 5", "Use 3, 7, 12 and 18 to make 45")
STRATEGIES = ("greedy", "chain", "best_of_n(n=3)")


def sent(deltas: list[Delta], phase: str) -> str:
    return "".join(delta.text for delta in deltas if delta.phase == phase)


@given(
    problem=st.sampled_from(PROBLEMS),
    strategy=st.sampled_from(STRATEGIES),
    tokens=st.integers(1, 80),
    stops=st.lists(st.sampled_from(["*", "3+", "12", "-", "45"]), max_size=2),
)
@settings(max_examples=15)
def test_the_deltas_joined_are_the_thinking_and_the_content(
    problem: str, strategy: str, tokens: int, stops: list[str]
) -> None:
    chosen = parse_strategy(strategy)

    async def run() -> None:
        async with Reasoner.open("reference", threads=1) as reasoner:
            path = PathDeltas(reasoner.models["policy"], stops, one_path=chosen.one_path)
            deltas: list[Delta] = []
            solution = await reasoner.solve(
                problem,
                chosen,
                Budget(tokens=tokens),
                seed=1,
                on_event=lambda event: deltas.extend(path.push(event)),
                deltas=True,
            )
            deltas.extend(path.end(solution))
            assert sent(deltas, "thinking") == solution.thinking
            assert sent(deltas, "answer") == cut_at(solution.conclusion, stops)[0]

    anyio.run(run)


def test_one_path_streams_while_it_is_written() -> None:
    async def run() -> tuple[list[int], list[Event]]:
        async with Reasoner.open("reference", threads=1) as reasoner:
            path = PathDeltas(reasoner.models["policy"], (), one_path=True)
            sizes: list[int] = []
            events: list[Event] = []

            def watch(event: Event) -> None:
                events.append(event)
                sizes.extend(len(delta.text) for delta in path.push(event))

            await reasoner.solve(PROBLEMS[0], "greedy", seed=1, on_event=watch, deltas=True)
            return sizes, events

    sizes, events = anyio.run(run)
    assert sum(isinstance(event, Wrote) for event in events) > 10
    assert len(sizes) > 5
