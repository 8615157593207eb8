"""The whole contract that a strategy author must know: `Strategy`, and the `Search` and `Branch` that
drive it."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from ..engine.errors import UsageError
from ..engine.sampling.detail import Alternatives, TokenStats
from ..engine.sampling.params import SamplingParams
from ..engine.text.profile import ModelProfile
from ..engine.text.stop import Stop, Until
from ..verifiers.base import Score, Verifier
from ..verifiers.problem import Problem
from ..verifiers.vote import Select
from .parameters import check


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one `extend` or `append` added to a branch: ids, their text, raw log-probabilities (one per
    sampled token, none for forced ones) and why it ended. `generated` counts the positions that were paid
    for. `stats` and `alternatives` have one entry per sampled token where `SamplingParams.stats_top_k`
    and `top_logprobs` asked for them, else none."""

    tokens: tuple[int, ...]
    text: str
    stop: Stop
    logprobs: tuple[float, ...] = ()
    generated: int = 0
    stats: tuple[TokenStats, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()


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
    def profile(self) -> ModelProfile:
        """The markers of its model: `wait`, `think_end`, `step_mark`."""
        ...

    @property
    def thinking(self) -> bool:
        """Whether it is in the thinking phase; never, for a model without one."""
        ...

    @property
    def thinking_length(self) -> int:
        """Tokens of thinking so far, without the marker that ends it: `truncate(thinking_length)` takes the
        end of thinking back. 0 for a model without a thinking phase."""
        ...

    @property
    def thinking_begun(self) -> bool:
        """Whether the marker that begins thinking stands already, in the prompt or behind it; true where the
        model needs none."""
        ...

    @property
    def conclusion(self) -> str:
        """Text behind the end of thinking, end ids apart; all of it for a model without a thinking phase."""
        ...

    @property
    def room(self) -> int:
        """Tokens that its context still takes; below 0 where the prompt alone is too long."""
        ...

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
    def answer_reserve(self) -> int:
        """Tokens beyond `tokens_left` that only answers may use."""
        ...

    @property
    def flops_left(self) -> int | None: ...

    @property
    def seconds_left(self) -> float | None: ...

    @property
    def kv_owned(self) -> int:
        """Positions of the policy that live branches own now, the prompt's with them, a shared one counted
        once."""
        ...

    @property
    def kv_left(self) -> int | None:
        """Positions that may still be owned at once (`Budget.kv_tokens`). A branch that needs more makes
        idle ones give way, then waits."""
        ...

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
    def verifier(self) -> Verifier | None:
        """What `evaluate` uses; the last check of a finished branch."""
        ...

    @property
    def step_verifier(self) -> Verifier | None:
        """What scores partial work: `verifier` where it can, else the open reward model. Never None for a
        strategy whose `needs` has `step_scores`."""
        ...

    @property
    def budget(self) -> BudgetView:
        """What is left, within the phases in force."""
        ...

    @property
    def graph(self) -> Any:
        """The `SearchGraph`."""
        ...

    @property
    def weights_digest(self) -> str:
        """Tells the policy's weights from others."""
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

    async def classes(self, branches: Sequence[Branch]) -> list[str | None]:
        """The class of each branch's answer among those of `branches`, None where it has no answer: equal
        answers are of one class, however they are written, as the vote groups them. By branch id, the first
        answer of a class names it, and later branches change no class of earlier ones; names hold within one
        call. New forms of answers may take seconds to compare, off the event loop.
        """
        ...

    def retire(self, branches: Iterable[Branch]) -> None:
        """Take earlier offers out of the choice, because later ones were made out of them. They stay among
        the candidates, and count again where no other offer has an answer."""
        ...

    def scope(self, root: Branch, strategy: "Strategy") -> "AbstractAsyncContextManager[Search]":
        """The search as `strategy`, nested in another one, sees it: it begins at `root`, and what it offers
        stands there alone, chosen among by its `selection`. A sound pass leaves the block where the strategy
        `stops_on_verified`. However the block is left, its incumbent is then offered here, and all branches
        that grew inside are pruned; `root` itself lives on.
        """
        ...

    def select_by(self, rule: Select) -> None:
        """Choose the incumbent by another rule than `Strategy.selection` from now on."""
        ...

    async def open(self, prompt: str | Sequence[int], *, model: str = "policy") -> Branch:
        """A new root with a prompt of its own: a judge, a refinement, an aggregation."""
        ...

    def phase(
        self, name: str, *, tokens: int | None = None, flops: int | None = None, answer_reserve: int = 0
    ) -> AbstractAsyncContextManager[BudgetView]:
        """A nested cap on what is spent inside the block. `answer_reserve`: tokens beyond `tokens` that only
        answers may use, as far as the budget keeps some for them."""
        ...

    def note(self, event: str, **fields: Any) -> None:
        """Record something for the event stream and the graph."""
        ...


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy cannot work without; checked before anything runs.

    `scores`: a verifier; `step_scores`: one that scores partial work; `models`: roles that must be open
    besides the policy; `capabilities`: what the engine must offer, as fields of
    `engine.protocol.Capabilities`.
    """

    step_scores: bool = False
    scores: bool = False
    models: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()

    def joined(self, other: "Needs") -> "Needs":
        """What both need."""
        return Needs(
            step_scores=self.step_scores or other.step_scores,
            scores=self.scores or other.scores,
            models=tuple(dict.fromkeys((*self.models, *other.models))),
            capabilities=tuple(dict.fromkeys((*self.capabilities, *other.capabilities))),
        )


class Strategy(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all strategies: parameters as fields, the algorithm in `run`.

    `run` drives the search and returns when it is done; the incumbent among what it offered is the
    answer. It is cancelled when the budget's deadline passes or, where `stops_on_verified`, a sound
    verifier passed a candidate. `lossless`: what it writes is distributed as the policy alone writes.
    """

    needs: ClassVar[Needs] = Needs()
    lossless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check every parameter against its type and range: `UsageError` in one line where one does not
        hold."""
        check(self, str(type(self).__struct_config__.tag))

    async def run(self, search: Search) -> None:
        """Solve `search.problem`. Every strategy defines it."""
        raise UsageError(f"strategy {type(self).__struct_config__.tag}: define `async def run(self, search)`")

    def nested(self) -> "tuple[Strategy, ...]":
        """The strategies among the parameters."""
        values = [getattr(self, name) for name in self.__struct_fields__]
        listed = [
            item for value in values for item in (value if isinstance(value, tuple | list) else (value,))
        ]
        return tuple(item for item in listed if isinstance(item, Strategy))

    def requirements(self) -> Needs:
        """What it needs with these parameters, nested strategies included. A strategy whose needs depend on
        its parameters extends this."""
        needs = self.needs
        for inner in self.nested():
            needs = needs.joined(inner.requirements())
        return needs

    def only_path(self) -> tuple[int, ...] | None:
        """Where it writes the one path that it can choose, with these parameters: the child indices from its
        root, none for the root itself. None where it chooses among several.

        What stands there can be shown at once as part of the result: nothing of it may be taken back but the
        end of thinking or of the sequence, and an unfinished step.
        """
        return None

    def is_lossless(self) -> bool:
        """Whether it is lossless with these parameters, nested strategies included."""
        return self.lossless and all(inner.is_lossless() for inner in self.nested())

    def selection(self) -> Select:
        """How the incumbent is chosen among the offered; strategies that let the user choose return their
        field."""
        return Select.WEIGHTED_VOTE

    def stops_on_verified(self) -> bool:
        """Whether a pass of a sound verifier ends the search."""
        return True
