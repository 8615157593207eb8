"""Sequential revision: each attempt is a new root that reads those before it, in one budget and graph."""

import re
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason
from branchwise.strategies.refine import Refine
from branchwise.verifiers.problem import Attempt, Problem
from branchwise.verifiers.vote import Select
from support.scripted import PLAIN, ScriptedEngine
from support.searching import DigitVerifier, solve

ROOM = 4000


def attempts_in(prompt: str) -> list[str]:
    """The answers of the attempts that a prompt shows."""
    return re.findall(r"Final answer of attempt \d+: (\S+)", prompt)


def counts_up(text: str, seed: int) -> str:
    """Answers one more than the last answer in the prompt, 1 without one."""
    thought, end, said = text.partition("|")
    shown = attempts_in(text)
    if end:
        return f"{int(shown[-1]) + 1 if shown else 1}$"[len(said) :] or "$"
    return "ab;|"[len(thought.rpartition(":")[2])]


def engine(script: Any = counts_up, **options: Any) -> ScriptedEngine:
    return ScriptedEngine({"policy": script}, max_model_len=ROOM, **options)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_each_round_is_a_new_root(rounds: int) -> None:
    run = engine()
    solution = solve(run, Refine(rounds=rounds))
    assert [candidate.answer for candidate in solution.candidates] == [str(i + 1) for i in range(rounds + 1)]
    assert [candidate.id for candidate in solution.candidates] == [str(i) for i in range(rounds + 1)]
    assert solution.usage.tokens == 6 * (rounds + 1) == run.tokens_sampled
    assert solution.graph.tokens_spent == solution.usage.tokens
    prompts = [node for node in solution.graph.nodes() if node.kind == "prompt"]
    assert len(prompts) == rounds + 1
    assert solution.usage.prompt_tokens == sum(prompt.length for prompt in prompts)
    assert run.live_sequences == 0


@pytest.mark.parametrize("k", [1, 2, 4])
def test_at_most_the_last_k_attempts_are_shown(k: int) -> None:
    solution = solve(engine(), Refine(rounds=5, k=k))
    prompts = [node.text for node in solution.graph.nodes() if node.kind == "prompt"]
    expected = [[str(i) for i in range(max(1, n - k + 1), n + 1)] for n in range(1, 6)]
    assert [attempts_in(prompt) for prompt in prompts[1:]] == expected
    shown = [note["of"] for note in solution.graph.notes if note["note"] == "revision"]
    assert shown == [[str(int(answer) - 1) for answer in answers] for answers in expected]


def test_the_context_drops_the_first_attempts_before_the_last() -> None:
    whole = solve(engine(), Refine(rounds=4))
    lengths = [node.length for node in whole.graph.nodes() if node.kind == "prompt"]
    solution = solve(
        ScriptedEngine({"policy": counts_up}, max_model_len=lengths[2] + 6), Refine(rounds=4, k=4)
    )
    shown = [note["of"] for note in solution.graph.notes if note["note"] == "revision"]
    assert [len(of) for of in shown] == [1, 2, 2, 2]
    assert [candidate.answer for candidate in solution.candidates] == ["1", "2", "3", "4", "5"]


def test_it_ends_where_not_one_attempt_fits() -> None:
    solution = solve(ScriptedEngine({"policy": counts_up}, max_model_len=80), Refine(rounds=4))
    assert solution.answer == "1"
    assert solution.graph.notes[-1]["note"].startswith("no room")


def test_it_stops_at_a_sound_pass() -> None:
    solution = solve(engine(), Refine(rounds=5), verifier=DigitVerifier("3"))
    assert (solution.reason, solution.answer, len(solution.candidates)) == (Reason.SOLVED, "3", 3)


def test_it_goes_on_behind_a_sound_pass_where_told() -> None:
    solution = solve(engine(), Refine(rounds=5, stop_on_verified=False), verifier=DigitVerifier("3"))
    assert (solution.answer, len(solution.candidates)) == ("3", 6)


def test_the_vote_is_within_the_chain() -> None:
    def wavering(text: str, seed: int) -> str:
        said = text.partition("|")[2]
        answer = {0: "7", 1: "9", 2: "7"}[min(2, len(attempts_in(text)))]
        return (answer + "$")[len(said) :] if "|" in text else "|"

    solution = solve(engine(wavering), Refine(rounds=2, select=Select.MAJORITY))
    assert [candidate.answer for candidate in solution.candidates] == ["7", "9", "7"]
    assert solution.answer == "7"


@pytest.mark.parametrize("tokens", [2, 6, 7, 11, 12, 100])
def test_all_rounds_share_one_budget(tokens: int) -> None:
    solution = solve(engine(), Refine(rounds=20), Budget(tokens=tokens))
    assert solution.usage.tokens == tokens
    assert solution.reason is Reason.BUDGET


def test_a_round_that_fails_leaves_the_others() -> None:
    run = engine(fail_at=9)
    solution = solve(run, Refine(rounds=3))
    assert [candidate.answer for candidate in solution.candidates] == ["1", "2", "3"]
    assert run.live_sequences == 0


class OwnForm:
    """A task that says itself how attempts are put."""

    name = "own"

    def prompt(self) -> str:
        return "task"

    def extract(self, text: str) -> str | None:
        return text.strip() or None

    def canonical(self, answer: str) -> str | None:
        return answer

    def verifier(self) -> None:
        return None

    def revise(self, attempts: Sequence[Attempt]) -> str:
        return "task" + "".join(f"<{a.thinking}/{a.conclusion}/{a.answer}>" for a in attempts)


def test_the_task_says_how_attempts_are_put() -> None:
    async def search() -> list[str]:
        async with Reasoner.over(
            engine(lambda text, seed: "ab;|5$"[len(text.rpartition(":")[2]) :])
        ) as reasoner:
            problem = Problem(text="task", task=OwnForm())
            solution = await reasoner.solve(problem, Refine(rounds=2), seed=0)
            return [node.text for node in solution.graph.nodes() if node.kind == "prompt"]

    assert anyio.run(search) == ["task", "task<ab;/5/5>", "task<ab;/5/5><ab;/5/5>"]


def test_a_model_without_a_thinking_phase_shows_what_it_wrote() -> None:
    def plain(text: str, seed: int) -> str:
        return "ab;5$"[len(text.rpartition(":")[2]) :]

    solution = solve(engine(plain, profile=PLAIN), Refine(rounds=1))
    prompts = [node.text for node in solution.graph.nodes() if node.kind == "prompt"]
    assert "Attempt 1:\nab;5\nFinal answer of attempt 1: 5\n" in prompts[1]
