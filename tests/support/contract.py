"""What every strategy and verifier must keep, and a scripted engine with all that one may need."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from branchwise.engine.sampling.detail import TokenStats
from branchwise.reasoning.solution import Reason, Solution
from branchwise.verifiers.problem import Task
from support.scripted import Script, ScriptedEngine
from support.trees import digit_value, steps_and_an_answer

EXAMPLES = int(os.environ.get("BRANCHWISE_EXAMPLES", "2"))
"""For each name; `.ci/run` asks for more."""

ANSWERS = ("3", "3", "3", "4", "5", "")


def sureness(text: str, seed: int) -> TokenStats:
    """By the last character."""
    return TokenStats(entropy=0.5, self_certainty=1.0, confidence=1.0 + ord(text[-1]) % 7)


def equipped(
    *,
    steps: int = 2,
    answers: Sequence[str] = ANSWERS,
    draft: bool = True,
    prm: bool = True,
    token_stats: bool = True,
    kind: type[ScriptedEngine] = ScriptedEngine,
    **options: Any,
) -> ScriptedEngine:
    """Policy, draft model, step scorer and token statistics, but for what is False."""
    writers: dict[str, Script] = {"policy": steps_and_an_answer(steps, answers)}
    if draft:
        writers["draft"] = writers["policy"]
    return kind(
        writers,
        rewards={"prm": digit_value} if prm else None,
        stats=sureness if token_stats else None,
        **{"max_model_len": 4000, **options},
    )


def even_pace(seed: int, position: int) -> int:
    """One turn of the event loop for each token."""
    return 0


def paced(salt: int) -> Callable[[int, int], int]:
    """Turns of the event loop that a token takes: another order of arrival for each salt."""
    return lambda seed, position: hash((salt, seed, position)) % 4


def check_books(solution: Solution, engine: ScriptedEngine) -> None:
    """All that was paid is on the nodes, and nothing is left in the engine."""
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    nodes = solution.graph.tokens_spent, solution.graph.flops_spent
    assert nodes == (solution.usage.tokens, solution.usage.flops)
    assert solution.usage.tokens == engine.tokens_sampled + forced
    assert engine.live_sequences == 0


def check_best(solution: Solution, task: Task | None = None) -> None:
    """There is an answer as soon as something that nobody refuted was offered with one that can be read."""
    offered = [c for c in solution.candidates if c.answer is not None and c.verified is not False]
    standing = [c for c in offered if task is None or task.canonical(c.answer or "") is not None]
    assert (solution.answer is None) == (not standing)
    assert not standing or solution.answer in {candidate.answer for candidate in standing}
    assert not standing or solution.error is None
    assert (solution.reason is Reason.SOLVED) == (solution.verified is True)


def check_limits(
    solution: Solution, *, tokens: int | None = None, flops: int | None = None, kv: int | None = None
) -> None:
    """No limit was passed, and only a limit that was given is the reason."""
    assert tokens is None or solution.usage.tokens <= tokens
    assert flops is None or solution.usage.flops <= flops
    assert kv is None or solution.usage.engine["kv_peak_tokens"] <= kv
    ends = {Reason.SOLVED, Reason.EXHAUSTED, Reason.FAILED}
    assert solution.reason in ends if (tokens, flops, kv) == (None, None, None) else {*ends, Reason.BUDGET}
    assert (solution.reason is Reason.FAILED) == (solution.error is not None)
    assert "injected failure" in (solution.error or "injected failure")
