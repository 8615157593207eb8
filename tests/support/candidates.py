"""Candidates and leases for tests of verifiers that need no engine."""

from collections.abc import Callable, Sequence
from typing import Any

from branchwise.verifiers.base import Candidate, Score, StepSpan
from branchwise.verifiers.problem import Problem

Choice = Callable[[str, Sequence[str]], Sequence[float] | None]
"""(prompt, options) -> what a model gives each of them, not normalised."""


class SaidLease:
    """A lease on a model that says what the test tells it to; keeps all that it was asked."""

    def __init__(self, choose: Choice | None = None, texts: Sequence[str | None] = ()) -> None:
        self.prompts: list[str] = []
        self.models: list[str] = []
        self._choose = choose
        self._texts = list(texts)

    async def rewards(self, model: str, positions: Sequence[int]) -> tuple[float, ...] | None:
        raise AssertionError("no reward model is open")

    async def logprobs(self, model: str, start: int) -> tuple[float, ...] | None:
        raise AssertionError("no log-probability was expected")

    async def choose(
        self, prompt: str, options: Sequence[str], *, model: str = "policy", normalise: bool = True, **_: Any
    ) -> tuple[float, ...] | None:
        assert self._choose is not None
        assert not normalise
        self.prompts.append(prompt)
        self.models.append(model)
        found = self._choose(prompt, options)
        return None if found is None else tuple(found)

    async def write(self, prompt: str, *, model: str = "policy", **_: Any) -> str | None:
        self.prompts.append(prompt)
        self.models.append(model)
        return self._texts.pop(0)


def candidate(
    text: str = "the work",
    *,
    lease: Any = None,
    steps: Sequence[StepSpan] = (),
    complete: bool = True,
    branch: str = "0.0",
    problem: str = "the problem",
) -> Candidate:
    """A whole solution of that text."""
    return Candidate(
        problem=Problem(text=problem),
        tokens=tuple(range(max(len(text), sum(step.stop - step.start for step in steps)))),
        steps=tuple(steps),
        thinking="",
        conclusion=text,
        answer=text or None,
        complete=complete,
        lease=lease or SaidLease(),
        branch=branch,
    )


class Says:
    """A verifier that returns one score, or raises."""

    def __init__(
        self,
        score: Any,
        *,
        name: str = "says",
        sound: bool = False,
        oracle: bool = False,
        step_scores: bool = False,
        models: tuple[str, ...] = (),
        stats_top_k: int = 0,
    ) -> None:
        self.given = score
        self.name = name
        self.sound = sound
        self.oracle = oracle
        self.step_scores = step_scores
        self.models = models
        self.stats_top_k = stats_top_k
        self.asked = 0

    async def score(self, candidate: Candidate) -> Score:
        self.asked += 1
        if isinstance(self.given, Exception):
            raise self.given
        return self.given
