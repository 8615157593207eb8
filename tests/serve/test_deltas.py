"""What a stream sends is what the answer says: for any budget, strategy and stop string."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal
from branchwise import Budget, Reasoner
from branchwise.engine.protocol import ModelInfo
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.profile import ModelProfile
from branchwise.strategies.base import Strategy
from branchwise.strategies.grammar import parse_strategy
from branchwise.verifiers.problem import Problem
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import oracle_info
from support.scripted import CharTokenizer

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from branchwise.reasoning.events import Cut, Wrote
from branchwise.reasoning.solution import Solution
from branchwise.serve.deltas import Delta, OnlyPath, PathDeltas, only_path
from branchwise.serve.reading import Ask
from branchwise.serve.stops import cut_at

PROBLEMS = ("Use 3, 7 and 12 to make 43", "12 + 7*3 - 5", "Use 3, 7, 12 and 18 to make 45")
STRATEGIES = (
    "greedy",
    "chain",
    "chain(waits=3)",
    "chain(max_think=20)",
    "chain(probe_every=8, tau=2)",
    "best_of_n(n=1)",
    "adaptive(arm=chain, probe=0)",
    "self_consistency(n=1)",
    "best_of_n(n=3)",
)


class Streamed(NamedTuple):
    early: list[Delta]
    late: list[Delta]
    solution: Solution


Solved = Callable[[str, str, int, list[str]], Streamed]


def asked(strategy: Strategy) -> Ask:
    return Ask(
        index=0,
        problem=Problem(text="x"),
        strategy=strategy,
        budget=Budget(tokens=100),
        seed=1,
        sampling=SamplingParams(),
        max_tokens=None,
    )


def sent(deltas: list[Delta], phase: str) -> str:
    return "".join(delta.text for delta in deltas if delta.phase == phase)


@pytest.fixture(scope="module")
def solved() -> Iterator[Solved]:
    """Solves with the reference model; what was sent before the end, and the solution."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Reasoner.open("reference", threads=1)) as reasoner,
    ):

        def solve(problem: str, strategy: str, tokens: int, stops: list[str]) -> Streamed:
            chosen, info = parse_strategy(strategy), reasoner.models["policy"]
            path = PathDeltas(info, stops, only_path(asked(chosen), info))
            early: list[Delta] = []

            async def run() -> Solution:
                return await reasoner.solve(
                    problem,
                    chosen,
                    Budget(tokens=tokens),
                    seed=1,
                    on_event=lambda event: early.extend(path.push(event)),
                    deltas=True,
                )

            solution = portal.call(run)
            return Streamed(early, path.end(solution), solution)

        yield solve


@given(
    problem=st.sampled_from(PROBLEMS),
    strategy=st.sampled_from(STRATEGIES),
    tokens=st.integers(1, 80),
    stops=st.lists(st.sampled_from(["*", "3+", "12", "-", "45"]), max_size=2),
)
@settings(max_examples=30, deadline=None)
def test_the_deltas_joined_are_the_thinking_and_the_content(
    solved: Solved, problem: str, strategy: str, tokens: int, stops: list[str]
) -> None:
    early, late, solution = solved(problem, strategy, tokens, stops)
    assert sent([*early, *late], "thinking") == solution.thinking
    assert sent([*early, *late], "answer") == cut_at(solution.conclusion, stops)[0]


@pytest.mark.parametrize("strategy", ["greedy", "chain", "best_of_n(n=1)", "adaptive(arm=chain, probe=0)"])
def test_one_path_streams_while_it_is_written(solved: Solved, strategy: str) -> None:
    early, _, _ = solved(PROBLEMS[0], strategy, 500, [])
    assert sent(early, "answer")
    assert len(early) > 5


@pytest.mark.parametrize(
    ("strategy", "path"),
    [
        ("greedy", "0"),
        ("chain(waits=2)", "0"),
        ("best_of_n(n=1)", "0.0"),
        ("self_consistency(n=1)", "0.0"),
        ("adaptive(arm=greedy, probe=0)", "0"),
        ("adaptive(arm=greedy, probe=2)", None),
        ("best_of_n(n=2)", None),
        ("best_of_n(n=1, inner=chain)", None),
        ("beam(n=1, width=1)", None),
    ],
)
def test_the_only_path_is_known_where_there_is_one(strategy: str, path: str | None) -> None:
    info = marked("</think>")
    found = only_path(asked(parse_strategy(strategy)), info)
    assert (found and found.branch) == path


def marked(think_end: str) -> ModelInfo:
    profile = ModelProfile(think_end=think_end, stop_ids=frozenset({36}))
    return msgspec.structs.replace(oracle_info(), tokenizer=CharTokenizer(), profile=profile)


TOKENS = ("a", "b<", ".</", "</", "think", "think>", ">", "</think>", " ", "<")


@given(
    tokens=st.lists(st.sampled_from(TOKENS), max_size=40),
    sizes=st.lists(st.integers(1, 3), max_size=40),
    reopened=st.lists(st.booleans(), max_size=40),
)
def test_an_end_of_thinking_that_is_taken_back_was_never_sent(
    tokens: list[str], sizes: list[int], reopened: list[bool]
) -> None:
    """Thinking in tokens of any cut, some of them one event; each end is taken back with its whole tokens, or
    stands, and the answer follows."""
    end = "</think>"
    path = PathDeltas(marked(end), (), OnlyPath(branch="0"))
    written: list[str] = []
    deltas: list[Delta] = []

    def write(phase: str, *parts: str) -> None:
        deltas.extend(path.push(wrote("".join(parts), phase)))

    steps, again = iter(sizes), iter(reopened)
    waiting: list[str] = []
    size = 1
    for token in tokens:
        written.append(token)
        waiting.append(token)
        size -= 1
        ended = end in "".join(written)
        if size <= 0 or ended:
            write("thinking", *waiting)
            waiting, size = [], next(steps, 1)
        if ended:
            if not next(again, False):
                break
            kept = next(n for n in range(len(written), -1, -1) if end in "".join(written[n:]))
            del written[kept:]
            deltas.extend(
                path.push(Cut(problem_id="", tokens_spent=0, branch="0", kept=len("".join(written))))
            )
            written.append("Wait")
            write("thinking", "Wait")
    if waiting:
        write("thinking", *waiting)
    whole = "".join(written)
    thinking = whole.removesuffix(end)
    assert thinking.startswith(sent(deltas, "thinking"))
    if end in whole:
        write("answer", "4", "2")
        assert sent(deltas, "answer") == "42"


def wrote(text: str, phase: str) -> Wrote:
    return Wrote(problem_id="", tokens_spent=0, branch="0", text=text, phase=phase)
