"""The runner: what it tells a solver, and what becomes of failures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from branchwise.engine.errors import BranchwiseError, CapacityError, EngineClosed, StepFailed, UsageError
from branchwise.evals.runs.plan import Plan, Task, make_plan
from branchwise.evals.runs.record import Record
from branchwise.evals.runs.runner import Runner
from branchwise.evals.runs.solver import ModelSolver, Solved
from branchwise.evals.runs.store import Store
from branchwise.evals.suites.base import Gold, Grade, Sample
from branchwise.reasoning.graph import SearchGraph
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution, Usage
from branchwise.verifiers.answer_type import AnswerType
from support.evaluating import recipe

SAMPLES = tuple(
    Sample(id=f"s{i}", problem=f"problem {i}", gold=Gold(AnswerType.STRING, f"GOLD-{i}")) for i in range(6)
)


class Suite:
    """Grades "right" as right; raises where told to."""

    name = "made"
    oracle = True

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def samples(self, limit: int | None, seed: int) -> tuple[Sample, ...]:
        return SAMPLES

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        if self.fails:
            raise RuntimeError("no grade today")
        return Grade(answer == "right")


def solution(answer: str | None = "right") -> Solution:
    return Solution(
        answer=answer,
        text="",
        score=None,
        verified=None,
        reason=Reason.EXHAUSTED,
        usage=Usage(tokens=3, flops=5),
        candidates=(),
        graph=SearchGraph(),
        seed=0,
        model="made",
        strategy={},
    )


class Solver:
    """Calls `act` on each task; counts how many were in flight at once."""

    engines = 1

    def __init__(self, act: Callable[[Task], Solution]) -> None:
        self.act = act
        self.now = self.most = 0

    async def solve(self, task: Task) -> Solved:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await anyio.sleep(0.001)
            return Solved(solution=self.act(task))
        finally:
            self.now -= 1


def plan() -> Plan:
    return make_plan(recipe(strategies=("greedy",), limit=6), SAMPLES)


async def records_of(
    folder: Path,
    solver: Any,
    suite: Suite | None = None,
    interrupt: anyio.Event | None = None,
    parallel: int = 2,
) -> list[Record]:
    seen: list[Record] = []
    with Store.open(folder, plan(), resume=True) as store:
        runner = Runner(solver, suite or Suite(), store, parallel=parallel)
        try:
            await runner.run(list(plan().tasks()), interrupt or anyio.Event(), seen.append)
        finally:
            assert {r.key for r in seen if r.reason != "failed"} == store.done()
    return seen


pytestmark = pytest.mark.anyio


async def test_a_bounded_number_is_in_flight(tmp_path: Path) -> None:
    solver = Solver(lambda task: solution())
    assert len(await records_of(tmp_path, solver, parallel=3)) == 6
    assert solver.most == 3


async def test_a_sample_that_fails_is_recorded_as_failed_and_the_rest_go_on(tmp_path: Path) -> None:
    def act(task: Task) -> Solution:
        if task.sample.id == "s2":
            raise StepFailed("injected")
        if task.sample.id == "s3":
            raise CapacityError("too long")
        return solution()

    records = {record.sample: record for record in await records_of(tmp_path, Solver(act))}
    assert {name for name, record in records.items() if record.reason == "failed"} == {"s2", "s3"}
    assert records["s2"].error == "StepFailed: injected"
    assert records["s2"].correct is False
    assert records["s2"].usage.tokens is None


@pytest.mark.parametrize("error", [UsageError("no such thing"), EngineClosed("no such thing")])
async def test_what_concerns_all_ends_the_run_and_what_is_recorded_stays(
    tmp_path: Path, error: BranchwiseError
) -> None:
    def act(task: Task) -> Solution:
        if task.sample.id == "s4":
            raise error
        return solution()

    with pytest.raises(type(error), match="no such thing"):
        await records_of(tmp_path, Solver(act), parallel=1)
    with Store.read(tmp_path) as store:
        assert len(store.done()) == 4


async def test_a_grader_that_raises_loses_no_search(tmp_path: Path) -> None:
    records = await records_of(tmp_path, Solver(lambda task: solution()), Suite(fails=True))
    assert {record.correct for record in records} == {None}
    assert {record.grade_reason for record in records} == {"grader failed: RuntimeError: no grade today"}


async def test_an_interrupt_starts_nothing_more_and_keeps_what_is_solved(tmp_path: Path) -> None:
    interrupt = anyio.Event()

    def act(task: Task) -> Solution:
        if task.sample.id == "s2":
            interrupt.set()
        return solution()

    records = await records_of(tmp_path, Solver(act), interrupt=interrupt, parallel=1)
    assert [record.sample for record in records] == ["s0", "s1", "s2"]


async def test_gold_reaches_no_search(tmp_path: Path) -> None:
    asked: list[str] = []

    class Spy(Reasoner):
        def __init__(self) -> None:
            pass

        async def solve(self, *arguments: Any, **options: Any) -> Solution:
            asked.append(repr((arguments, options)))
            return solution(None)

    records = await records_of(tmp_path, ModelSolver(Spy(), plan().recipe))
    assert len(asked) == len(records) == 6
    assert any("problem 3" in text for text in asked)
    assert not any("GOLD" in text for text in asked)


async def test_weights_that_changed_are_refused(tmp_path: Path) -> None:
    await records_of(tmp_path, Solver(lambda task: solution()))
    with Store.open(tmp_path, plan(), resume=True) as store:
        store.note("weights of policy", "abc")
        store.note("weights of policy", "abc")
        with pytest.raises(UsageError, match="weights of policy was abc and is now xyz"):
            store.note("weights of policy", "xyz")
