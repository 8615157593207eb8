"""Shared by the tests of the orchestrator: scripted writers, small strategies, one call to run a search."""

import random
from collections.abc import Callable
from typing import Any

import anyio
from branchwise.engine.text.stop import Stop, Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.verifiers.base import Candidate, Score
from branchwise.verifiers.problem import Problem
from support.scripted import ScriptedEngine, following

PROMPT_LENGTH = len("Qtask:")


def writer(prompt: str, seed: int) -> str:
    """Two to five steps of a few characters, the end of thinking, an answer of one digit, the end."""
    rng = random.Random(f"{prompt}{seed}")
    steps = ["".join(rng.choices("ab+=", k=rng.randint(2, 9))) + ";" for _ in range(rng.randint(2, 5))]
    return "".join(steps) + "|" + rng.choice("0123456789") + "$"


def scripted(plan: Callable[[str, int], str] = writer, **options: Any) -> ScriptedEngine:
    """An engine whose policy writes `plan`; a fork goes on with its own seed's text."""
    return ScriptedEngine({"policy": following(plan, PROMPT_LENGTH)}, **options)


def uneven(seed: int, position: int) -> int:
    """Turns of the event loop that a token takes: branches run at different speeds."""
    return (seed ^ (position * 2654435761)) % 4


class Samples(Strategy, tag="samples", kw_only=True, frozen=True):
    """Best-of-n as the contract's example has it."""

    n: int | None = 8

    async def run(self, search: Search) -> None:
        async def finish(branch: Branch) -> None:
            step = await branch.extend(Until.ANSWER)
            if step.stop in (Stop.BUDGET, Stop.LENGTH) and not branch.complete:
                await branch.conclude()

        async with search.each(search.root.fork(self.n), finish) as done:
            async for branch in done:
                await branch.evaluate()
                search.offer(branch)


class DigitVerifier:
    """Sound: the answer must be `right`."""

    sound = True
    oracle = False
    step_scores = False
    models: tuple[str, ...] = ()
    name = "digit"

    def __init__(self, right: str) -> None:
        self.right = right

    async def score(self, candidate: Candidate) -> Score:
        passed = candidate.answer == self.right
        return Score(value=float(passed), verified=passed)


async def search(
    engine: ScriptedEngine,
    strategy: Strategy,
    budget: Budget | None = None,
    *,
    reproducible: bool = True,
    seed: int = 0,
    **options: Any,
) -> Solution:
    """Run one search on the engine."""
    async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
        return await reasoner.solve(
            Problem(text="task"), strategy, budget or Budget(tokens=10_000), seed=seed, **options
        )


def solve(
    engine: ScriptedEngine, strategy: Strategy, budget: Budget | None = None, **options: Any
) -> Solution:
    """`search`, from a test without an event loop."""
    return anyio.run(lambda: search(engine, strategy, budget, **options))


def solve_until_deadline(solve_within: Callable[[float], Solution]) -> Solution:
    """What `solve_within` returns in as many seconds as this machine, with all else that it does, needs until
    there is a first answer."""
    for seconds in (0.3, 3.0, 30.0):
        solution = solve_within(seconds)
        if solution.answer is not None:
            break
    return solution


def outside_engine(solution: Solution) -> dict[str, Any]:
    """What must be equal under one seed: all but `usage.engine`, with the graph."""
    plain = solution.as_json()
    plain["usage"].pop("engine")
    plain["graph"] = solution.graph.to_node_link()
    return plain
