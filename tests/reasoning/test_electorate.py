"""Equal answers vote together in a live search, however they are written; comparing them never blocks it."""

import random
import threading

import anyio
import pytest
from branchwise.reasoning.aside import aside
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.electorate import Electorate
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.self_consistency import SelfConsistency
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.vote import Select
from branchwise.verifiers.worker import WorkerTimeout
from hypothesis import given
from hypothesis import strategies as st
from support.searching import outside_engine, scripted, solve, solve_until_deadline, uneven

FORMS = ["x+1", "1+x", "x-1", "-1+x", "2(x+1)/2", "5", "5.0", "7"]


def at_two(form: str) -> float:
    """The value of a form at x = 2: equal forms of these agree there, and only they."""
    return eval(form.replace("2(", "2*(").replace("x", "2"))


class Symbolic:
    """Tells equal forms apart by `at_two`, and counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, first: str, second: str) -> bool:
        self.asked.append((first, second))
        return at_two(first) == at_two(second)


def electorate(symbolic, task=None) -> tuple[Electorate, list[int]]:
    moves: list[int] = []
    return Electorate(Problem(text="p", task=task), moves.append, symbolic), moves


def learned(people: Electorate, answers: list[str | None]) -> list[str | None]:
    anyio.run(people.compare, answers)
    return people.classes(answers)


def test_forms_of_one_value_are_one_class_named_by_the_first():
    people, moves = electorate(Symbolic())
    assert learned(people, ["x+1", None, "5", "1+x", "5.0", "x-1", "7"]) == [
        "x+1",
        None,
        "5",
        "x+1",
        "5",
        "x-1",
        "7",
    ]
    assert sum(moves) == 0
    assert moves


@given(st.lists(st.sampled_from([None, *FORMS]), max_size=10), st.randoms(use_true_random=False))
def test_classes_do_not_depend_on_when_they_were_asked_for(answers: list[str | None], rng: random.Random):
    at_once, _ = electorate(Symbolic())
    step_by_step, _ = electorate(symbolic := Symbolic())
    for _ in range(3):
        learned(step_by_step, [answer for answer in answers if rng.random() < 0.5])
    assert learned(step_by_step, answers) == learned(at_once, answers)
    asked = [frozenset(pair) for pair in symbolic.asked]
    assert len(asked) == len(set(asked)), "each pair is compared once"


def test_numbers_and_words_never_reach_the_worker():
    def never(first: str, second: str) -> bool:
        raise AssertionError("asked")

    people, moves = electorate(never)
    answers: list[str | None] = ["1/2", "0.5", "3", "apple", "Apple", "pear", "(1, 2)"]
    assert learned(people, answers) == ["1/2", "1/2", "3", "apple", "apple", "pear", "(1,2)"]
    assert moves == []


def test_what_cannot_be_decided_stays_apart():
    def late(first: str, second: str) -> bool:
        raise WorkerTimeout("late")

    people, moves = electorate(late)
    assert learned(people, ["x+1", "1+x"]) == ["x+1", "1+x"]
    assert sum(moves) == 0


def test_a_task_says_alone_which_answers_are_equal():
    class ByLength:
        name = "length"

        def prompt(self) -> str:
            return "p"

        def extract(self, text: str) -> str | None:
            return text

        def canonical(self, answer: str) -> str | None:
            return str(len(answer))

        def verifier(self):
            return None

    def never(first: str, second: str) -> bool:
        raise AssertionError("asked")

    people, _ = electorate(never, ByLength())
    assert learned(people, ["x+1", "1+x", "ab"]) == ["3", "3", "2"]


def spelled(prompt: str, seed: int) -> str:
    """Half of all samples find the value of x+1, each in another way; the rest agree on 7 or are alone."""
    rng = random.Random(seed)
    answer = rng.choice(["x+1", "1+x", "2(x+1)/2", "7", "7", str(rng.randint(100, 999))])
    return "ab;" * rng.randint(1, 3) + f"|\\boxed{{{answer}}}$"


@pytest.fixture
def symbolic(monkeypatch: pytest.MonkeyPatch) -> Symbolic:
    asked = Symbolic()
    monkeypatch.setattr("branchwise.reasoning.electorate.symbolic_tier", asked)
    return asked


def value_of(answer: str | None) -> float | None:
    return None if answer is None else at_two(answer)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strategy", [BestOfN(n=16, select=Select.MAJORITY), SelfConsistency(n=16)])
def test_the_majority_is_over_values_and_not_over_spellings(
    seed: int, strategy: Strategy, symbolic: Symbolic
):
    slow, fast = (
        solve(scripted(spelled, pace=pace), strategy, seed=seed)
        for pace in (uneven, lambda seed, position: 0)
    )
    values = [value_of(candidate.answer) for candidate in slow.candidates]
    assert symbolic.asked
    best = max(map(values.count, values))
    assert value_of(slow.answer) == next(value for value in values if values.count(value) == best)
    assert outside_engine(slow) == outside_engine(fast)
    watched = solve(scripted(spelled), strategy, seed=seed, on_event=lambda event: None)
    assert watched.answer == slow.answer, "an incumbent that was looked at early is no final one"


@pytest.mark.parametrize("seed", range(6))
def test_the_lossless_stop_holds_for_classes_too(seed: int, symbolic: Symbolic):
    whole = solve(scripted(spelled), SelfConsistency(n=16), seed=seed)
    stopped = solve(scripted(spelled, pace=uneven), SelfConsistency(n=16, stop="lossless"), seed=seed)
    assert value_of(stopped.answer) == value_of(whole.answer)
    assert stopped.usage.tokens <= whole.usage.tokens


class Asks(Strategy, tag="asks", kw_only=True, frozen=True):
    """Asks for the classes of its branches, the last first."""

    async def run(self, search: Search) -> None:
        branches = search.root.fork(6)

        async def finish(branch: Branch) -> None:
            await branch.conclude()

        async with search.each(branches, finish) as done:
            async for branch in done:
                search.offer(branch)
        answers = [branch.answer for branch in branches[::-1]]
        search.note("classes", answers=answers, names=await search.classes(branches[::-1]))


def test_a_strategy_gets_the_classes_in_the_order_it_asked_for(symbolic: Symbolic):
    note = solve(scripted(spelled), Asks()).graph.notes[-1]
    values = [value_of(name) for name in note["names"]]
    assert values == [value_of(answer) for answer in note["answers"]]
    for value in set(values):
        assert len({name for name in note["names"] if value_of(name) == value}) == 1


def test_a_slow_comparison_does_not_hold_up_the_deadline(monkeypatch: pytest.MonkeyPatch):
    over = threading.Event()
    monkeypatch.setattr("branchwise.reasoning.electorate.symbolic_tier", lambda a, b: over.wait(600))

    def within(seconds: float) -> Solution:
        return solve(scripted(spelled), SelfConsistency(n=16), Budget(seconds=seconds))

    try:
        solution = solve_until_deadline(within)
    finally:
        over.set()
    assert solution.reason is Reason.DEADLINE
    assert solution.answer is not None


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_work_aside_gives_its_result_or_its_error_and_runs_in_a_daemon(backend: str):
    def fails() -> None:
        raise ValueError("no")

    assert anyio.run(aside, lambda: threading.current_thread().daemon, backend=backend)
    with pytest.raises(ValueError, match="no"):
        anyio.run(aside, fails, backend=backend)


def test_roots_vote_together_through_the_worker_process():
    def script(prompt: str, seed: int) -> str:
        return "ab;|" + [r"\boxed{\sqrt{8}}", r"\boxed{2\sqrt{2}}", r"\boxed{9}"][seed % 3] + "$"

    solution = solve(scripted(script, max_model_len=200), SelfConsistency(n=9))
    found = [candidate.answer for candidate in solution.candidates]
    assert found.count("9") < 5, "else the vote is no test"
    assert solution.answer in (r"\sqrt{8}", r"2\sqrt{2}")
