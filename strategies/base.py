"""The whole contract that a strategy author must know: `Strategy`, and the `Search` and `Branch` that
drive it."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from ..engine.sampling.detail import TokenStats
from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from ..verifiers.base import Score, Verifier
from ..verifiers.problem import Problem
from ..verifiers.vote import Select
from .parameters import check


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one `extend` or `append` added to a branch: ids, their text, raw log-probabilities (one per
    sampled token, none for forced ones) and why it ended. `generated` counts the positions that were paid
    for. `stats` has one entry per sampled token where `SamplingParams.stats_top_k` asked for them, else
    none."""

    tokens: tuple[int, ...]
    text: str
    stop: Stop
    logprobs: tuple[float, ...] = ()
    generated: int = 0
    stats: tuple[TokenStats, ...] = ()


class Branch(Protocol):
    """A live path from the problem to a partial solution; it leases KV blocks until it is pruned."""

    @property
    def id(self) -> str:
        """Child indices from the root, as "0.3.1": stable under a seed."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """Ids after the prompt."""
        ...

    @property
    def text(self) -> str: ...

    @property
    def steps(self) -> Sequence[Step]: ...

    @property
    def answer(self) -> str | None:
        """The final answer, None while there is none (an abstention)."""
        ...

    @property
    def complete(self) -> bool:
        """Ended by itself, or closed its final answer after the end of thinking."""
        ...

    @property
    def live(self) -> bool: ...

    @property
    def score(self) -> float | None:
        """Value of the last evaluation."""
        ...

    @property
    def verified(self) -> bool | None: ...

    @property
    def mean_logprob(self) -> float | None:
        """Mean raw log-probability of the sampled tokens, None before the first."""
        ...

    @property
    def depth(self) -> int: ...

    @property
    def parent(self) -> "Branch | None": ...

    @property
    def rng(self) -> random.Random:
        """The branch's own generator, seeded from its path."""
        ...

    def fork(self, n: int | None) -> "list[Branch]":
        """`n` children sharing all KV; None: as many as the remaining budget can start. No forward pass.
        Raises `HandleError` while the branch is extending."""
        ...

    async def extend(
        self,
        until: Until = Until.STEP,
        *,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
        model: str = "policy",
        speculate: str | None = None,
        stop: Sequence[str] = (),
    ) -> Step:
        """Generate. Never raises for a spent budget: the step says so. `speculate` ("ngram(k=4)",
        "suffix(k=8)", "draft(k=4)"; None: as the search has it) changes the speed only, unless it says
        `verify=ratio`."""
        ...

    async def conclude(self, *, max_tokens: int | None = None) -> Step:
        """Force the end of thinking where it has not ended, and generate the answer, from the reserve
        where the budget is spent. Adds nothing to a complete branch. Never raises for a spent budget: the
        step says so."""
        ...

    async def append(self, content: str | Sequence[int]) -> Step:
        """Force tokens; they are charged, all or none (stop "budget")."""
        ...

    def truncate(self, position: int) -> None:
        """Drop the tokens from `position` (counted as in `tokens`) on."""
        ...

    async def evaluate(self, verifier: Verifier | None = None) -> Score:
        """Score what is new on this branch with the given verifier, else the search's."""
        ...

    def prune(self, reason: str) -> None:
        """Invalidate the handle; its blocks are free before the next plan. The graph keeps it, with the
        reason."""
        ...


class BudgetView(Protocol):
    """What is left, read-only. None: not limited."""

    @property
    def tokens_spent(self) -> int: ...

    @property
    def tokens_left(self) -> int | None:
        """Tokens that thinking may still use: the reserve for answers is not in it."""
        ...

    @property
    def flops_left(self) -> int | None: ...

    @property
    def seconds_left(self) -> float | None: ...

    @property
    def spent(self) -> bool:
        """Whether any limit is reached."""
        ...


BranchT = TypeVar("BranchT", bound=Branch)


class Search(Protocol):
    """One problem in progress."""

    @property
    def root(self) -> Branch: ...

    @property
    def problem(self) -> Problem: ...

    @property
    def verifier(self) -> Verifier | None: ...

    @property
    def budget(self) -> BudgetView: ...

    @property
    def graph(self) -> Any:
        """The `SearchGraph`."""
        ...

    @property
    def incumbent(self) -> Branch | None:
        """What any stop would return now."""
        ...

    def each(
        self, branches: Iterable[Branch], fn: Callable[[Branch], Awaitable[Any]]
    ) -> "AbstractAsyncContextManager[AsyncIterator[Branch]]":
        """Run `fn` on all branches side by side and yield each as it completes. A failure of one is
        recorded on that branch and the rest go on. Leaving the block prunes what is unfinished."""
        ...

    def offer(self, branch: Branch) -> None:
        """Propose a branch as an answer. It stays a candidate whatever becomes of the branch."""
        ...

    async def open(self, prompt: str | Sequence[int], *, model: str = "policy") -> Branch:
        """A new root with a prompt of its own: a judge, a refinement, an aggregation."""
        ...

    def phase(
        self, name: str, *, tokens: int | None = None, flops: int | None = None
    ) -> AbstractAsyncContextManager[BudgetView]:
        """A nested cap on what is spent inside the block."""
        ...

    def note(self, event: str, **fields: Any) -> None:
        """Record something for the event stream and the graph."""
        ...


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy cannot work without; checked before anything runs."""

    step_scores: bool = False
    scores: bool = False
    models: tuple[str, ...] = ()
    logprobs: bool = False


class Strategy(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all strategies: parameters as fields, the algorithm in `run`.

    `run` drives the search and returns when it is done; the incumbent among what it offered is the
    answer. It is cancelled when the budget's deadline passes or, where `stops_on_verified`, a sound
    verifier passed a candidate.
    """

    needs: ClassVar[Needs] = Needs()
    lossless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every parameter against its type and range: `UsageError` in one line where one does not
        hold."""
        check(self, str(type(self).__struct_config__.tag))

    async def run(self, search: Search) -> None:
        """Solve `search.problem`."""
        raise NotImplementedError(type(self).__name__)

    def selection(self) -> Select:
        """How the incumbent is chosen among the offered; strategies that let the user choose return their
        field."""
        return Select.WEIGHTED_VOTE

    def stops_on_verified(self) -> bool:
        """Whether a pass of a sound verifier ends the search."""
        return True
