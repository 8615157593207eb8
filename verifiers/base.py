"""The contract of a verifier: a candidate in, a score out; `None` means "cannot tell" and is never 0."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..engine.sampling.detail import TokenStats
from ..engine.sampling.params import SamplingParams

if TYPE_CHECKING:
    from .problem import Problem


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on one candidate.

    `value` lies in [0, 1], or is None where the verifier cannot tell.
    `verified` is true or false only from a sound verifier (exact replay, tests passed). `steps` holds one
    value per step for step verifiers. `detail` is one line for a person ("budget" where the budget did not
    cover the scoring, "failed: ..." where the verifier did not do its work).
    """

    value: float | None = None
    verified: bool | None = None
    steps: tuple[float, ...] = ()
    detail: str = ""


class StepSpan(msgspec.Struct, frozen=True):
    """Tokens `start <= p < stop` of the branch, and their text. `marked`: the step ends where the model's
    profile says that steps end; false for a cut one, and for the end of thinking and the answer of a model
    whose steps have a mark. `logprobs` are the raw log-probabilities of its sampled tokens (forced ones have
    none), `stats` their statistics where the sampling asked for them (`Verifier.stats_top_k`), else none."""

    start: int
    stop: int
    text: str
    marked: bool = True
    logprobs: tuple[float, ...] = ()
    stats: tuple[TokenStats, ...] = ()


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

    async def choose(
        self,
        prompt: str,
        options: Sequence[str],
        *,
        model: str = "policy",
        think: bool | None = False,
        normalise: bool = True,
    ) -> tuple[float, ...] | None:
        """The probability of each of two or more different `options` as what `model` says first to the user
        message `prompt`: exact, from the log-probabilities of all their tokens on forks that share the
        prompt's KV. `normalise`: over the options; else their sum is how likely the model says any of them.
        `model` is "policy" or any other open one; "judge" is the policy where no judge is open. `think`
        False: the answer without thinking.

        The options' tokens count in the budget's `tokens`, the prompt in `flops`. None where the budget or
        the context does not cover them.
        """
        ...

    async def write(
        self,
        prompt: str,
        *,
        model: str = "policy",
        max_tokens: int,
        sampling: SamplingParams | None = None,
        think: bool | None = False,
    ) -> str | None:
        """What `model` says to the user message `prompt`, at most `max_tokens`; a text that ends there, or
        with the budget, is cut. By the model's own sampling, or `sampling`; another seed at each call. Models
        and budget as in `choose`; None where not one token is covered."""
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
    partial work. `models` names the models it needs in the engine ("prm").

    It may also have `stats_top_k: int`: tokens are then sampled with their statistics (see `TokenStats`) over
    so many of the most likely ones; `asks: tuple[str, ...]`: models that it speaks to in prose (see
    `Lease.choose`); and `async prefer(first, second) -> float | None`, the probability that the first of two
    candidates is the better one, for `knockout`.
    """

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
