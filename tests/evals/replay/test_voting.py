"""The voting strategies on recorded samples: the published votes, and what stopping early saves of them."""

import random

import anyio
import pytest
from branchwise.evals.replay.backend import RecordedEngine
from branchwise.evals.replay.readers import open_recording
from branchwise.evals.replay.recording import Completion, RecordedProblem, Recording
from branchwise.evals.replay.task import RecordedTask
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.adaptive_consistency import AdaptiveConsistency
from branchwise.strategies.base import Strategy
from branchwise.strategies.dynamic_voting import DynamicVoting
from branchwise.strategies.esc import EarlyStoppingSelfConsistency as Esc
from branchwise.strategies.self_consistency import SelfConsistency
from branchwise.strategies.short_m_at_k import ShortMAtK
from branchwise.verifiers.problem import Problem
from support.data import data_path


@pytest.fixture
def as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are served in the order of the recording, in which the published ties were broken."""
    monkeypatch.setattr(random.Random, "shuffle", lambda self, items: None)


@pytest.fixture(scope="module")
def math_100() -> Recording:
    return open_recording(data_path("qwen25math_bon8_math100") / "math_cot_100.jsonl")


def solve(problem: RecordedProblem, strategy: Strategy) -> Solution:
    async def replayed() -> Solution:
        async with Reasoner.over(RecordedEngine(problem, name="recorded")) as reasoner:
            recorded = Problem(id=problem.id, text=problem.problem, task=RecordedTask(problem))
            return await reasoner.solve(recorded, strategy, seed=0)

    return anyio.run(replayed)


def replay(recording: Recording, strategy: Strategy) -> list[Solution]:
    return [solve(problem, strategy) for problem in recording.problems]


def right(recording: Recording, solutions: list[Solution]) -> int:
    grades = [{c.text: c.correct for c in reversed(problem.completions)} for problem in recording.problems]
    return sum(grade[solution.text] is True for grade, solution in zip(grades, solutions, strict=True))


def ties(solutions: list[Solution]) -> int:
    return sum(any(note.startswith("tie: ") for note in solution.notes) for solution in solutions)


def drawn(solutions: list[Solution]) -> int:
    return sum(len(solution.candidates) for solution in solutions)


@pytest.mark.usefixtures("as_recorded")
def test_qwen_on_math_has_the_published_majority_and_its_ties(math_100: Recording):
    whole = replay(math_100, SelfConsistency(n=8))
    assert (right(math_100, whole), ties(whole), drawn(whole)) == (93, 4, 800)
    stopped = replay(math_100, SelfConsistency(n=8, stop="lossless"))
    assert [s.answer for s in stopped] == [s.answer for s in whole]
    assert drawn(stopped) == 431


@pytest.mark.usefixtures("as_recorded")
@pytest.mark.parametrize(
    ("strategy", "samples"),
    [(Esc(n=8, window=4), 448), (AdaptiveConsistency(n=8), 447), (DynamicVoting(n=8), 350)],
)
def test_stopping_early_keeps_the_published_majority(math_100: Recording, strategy: Strategy, samples: int):
    solutions = replay(math_100, strategy)
    assert right(math_100, solutions) == 93
    assert drawn(solutions) == samples


def letters(answers: str, tokens: list[int]) -> RecordedProblem:
    """One completion for each letter; `_` for one without an answer."""
    completions = tuple(
        Completion(
            text=f"{place} {letter}",
            answer=None if letter == "_" else letter,
            correct=letter == "a",
            tokens=cost,
        )
        for place, (letter, cost) in enumerate(zip(answers, tokens, strict=True))
    )
    return RecordedProblem(id="p", problem="p", completions=completions)


TOKENS = [9, 10, 4, 8, 4, 1, 2, 9]


@pytest.mark.usefixtures("as_recorded")
@pytest.mark.parametrize(
    ("strategy", "tokens"),
    [
        (SelfConsistency(n=8), sum(TOKENS)),
        # a has 4 votes, b 2, when at time 9 only the second sample still runs, with 9 of its 10 tokens
        (SelfConsistency(n=8, stop="lossless"), sum(TOKENS) - 1),
        (Esc(n=8, window=2), sum(TOKENS[:6])),
        (AdaptiveConsistency(n=8), sum(TOKENS)),
        (AdaptiveConsistency(n=8, threshold=0.85), sum(TOKENS[:6])),
        (DynamicVoting(n=8, theta=0.6), sum(TOKENS[:3])),
        (ShortMAtK(k=8, m=1), 8 * 1),
        (ShortMAtK(k=8, m=2), 1 + 7 * 2),  # a tie of a with b
        (ShortMAtK(k=8, m=3), 1 + 2 + 6 * 4),
    ],
)
def test_a_recording_made_by_hand_is_voted_on_by_hand(strategy: Strategy, tokens: int):
    solution = solve(letters("baa_aaba", TOKENS), strategy)
    assert (solution.answer, solution.reason, solution.error) == ("a", Reason.EXHAUSTED, None)
    assert solution.usage.tokens == tokens
