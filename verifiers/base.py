"""The contract of a verifier: a candidate in, a score out; `None` means "cannot tell" and is never 0."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from .problem import Problem


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on one candidate.

    `value` lies in [0, 1], or is None where the verifier cannot tell.
    `verified` is true or false only from a sound verifier (exact replay, tests passed). `steps` holds one
    value per step for step verifiers. `detail` is one line for a person ("budget" where the budget did not
    cover the scoring).
    """

    value: float | None = None
    verified: bool | None = None
    steps: tuple[float, ...] = ()
    detail: str = ""


class StepSpan(msgspec.Struct, frozen=True):
    """Tokens `start <= p < stop` of the branch, and their text. `marked`: the step ends where the model's
    profile says that steps end; false for a cut one, and for the end of thinking and the answer of a model
    whose steps have a mark."""

    start: int
    stop: int
    text: str
    marked: bool = True


class Lease(Protocol):
    """A verifier's access to the engine, on the candidate's own branch: KV already there is reused, every
    row is metered, and what a fork or prune does to the branch happens to the scorer's mirror of it too."""

    async def rewards(self, model: str, positions: Sequence[int]) -> tuple[float, ...] | None:
        """Reward-head values in [0, 1] of `model` at token `positions`; None where the budget does not cover
        them."""
        ...

    async def logprobs(self, model: str, start: int) -> tuple[float, ...] | None:
        """Raw log-probabilities of the branch's tokens from `start` on under `model`, or None as above."""
        ...


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What a verifier sees of a branch. `steps` are token spans from the first generated token on;
    `thinking` and `conclusion` are the texts before and after the end of thinking; `answer` is what was
    extracted, None if nothing. `branch` is the id of the branch: a verifier that keeps partial results looks
    them up there and on its ancestors."""

    problem: "Problem"
    tokens: tuple[int, ...]
    steps: tuple[StepSpan, ...]
    thinking: str
    conclusion: str
    answer: str | None
    complete: bool
    lease: Lease
    branch: str = ""


class Verifier(Protocol):
    """Scores candidates. `sound`: a pass proves the answer right without a gold answer. `oracle`: uses gold,
    or recomputes the answer itself, and is refused for selection unless asked for. `step_scores`: scores
    partial work. `models` names the models it needs in the engine ("prm")."""

    @property
    def name(self) -> str: ...

    @property
    def sound(self) -> bool: ...

    @property
    def oracle(self) -> bool: ...

    @property
    def step_scores(self) -> bool: ...

    @property
    def models(self) -> tuple[str, ...]: ...

    async def score(self, candidate: Candidate) -> Score: ...
