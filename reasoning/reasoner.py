"""The facade: models opened once, problems solved side by side."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Unpack

import anyio

from ..engine.errors import UsageError
from ..engine.memory_plan import MemoryPlan
from ..engine.protocol import Backend, ModelInfo
from ..engine.text.tokenizer import Message
from ..strategies.base import Strategy
from ..strategies.grammar import parse_strategy
from ..verifiers.problem import Problem
from .branch import SearchBranch
from .budget import Budget
from .conversation import Conversation, closing
from .kept import KeptPrefix
from .many import solve_all
from .opened import OpenEngine, OpenOptions, check_hosted, open_engine, settling
from .preparing import DEFAULT_BUDGET, DEFAULT_STRATEGY, RunMaker, RunOptions
from .prompting import next_prefix
from .session import open_session
from .settle import Settler
from .solution import Solution
from .solve import run_search
from .source import ModelSource
from .stream import SolveStream, open_stream


class Reasoner:
    """Solves problems on models that stay open.

    Made by `Reasoner.open` (models, or an engine that is shared), or `Reasoner.over` (a back end of one's
    own). `reproducible`: the same seed gives the same solution whatever else runs (all but `usage.engine`);
    None leaves it to the policy's source.
    """

    def __init__(self, engine: OpenEngine, *, reproducible: bool | None = None) -> None:
        self.engine = engine
        self.backend = engine.backend
        self.source = engine.source
        self.reproducible = engine.source.reproducible if reproducible is None else reproducible
        self._maker = RunMaker(engine.backend, engine.source, engine.settler if self.reproducible else None)

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """How the models share the memory, None where the back end does not know."""
        return getattr(self.backend, "memory_plan", None)

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The open models by role: policy, draft, prm, judge."""
        return self.backend.models

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        model: str | None = None,
        *,
        engine: OpenEngine | Backend | None = None,
        reproducible: bool | None = None,
        **options: Unpack[OpenOptions],
    ) -> "AsyncIterator[Reasoner]":
        """Open models, the reference family where none is named; `draft`, `prm`, `judge` and the other
        options are those of `open_engine`.

        With `engine`, open nothing: it is one of `open_engine`, another reasoner's (`Reasoner.engine`) or a
        running back end, is shared with whoever else searches on it, and stays open when the block is left.
        What is then named must be what it has.

        Raises `ModelLoadError` and `UsageError` in one line.
        """
        async with _entered(engine, model, options) as entered:
            yield cls(entered, reproducible=reproducible)

    @classmethod
    @asynccontextmanager
    async def over(
        cls,
        backend: Backend,
        *,
        source: ModelSource | None = None,
        reproducible: bool = True,
        settler: Settler | None = None,
    ) -> "AsyncIterator[Reasoner]":
        """A reasoner on a back end that is already open. The engine should await `settler.settle` after
        deliveries."""
        async with settling(backend, source, settler) as engine:
            yield cls(engine, reproducible=reproducible)

    async def solve(
        self,
        problem: str | Problem,
        strategy: Strategy | str = DEFAULT_STRATEGY,
        budget: Budget | None = None,
        *,
        interrupt: anyio.Event | None = None,
        **options: Unpack[RunOptions],
    ) -> Solution:
        """Solve one problem; see `Solution` for what comes back whatever ended it.

        Options, all with a default: `verifier` (by default the task's own, else the reward model), `oracle`
        allows one that recomputes the answer. `seed` None draws one and reports it. `problem_id` (default:
        the text) tells problems of one run apart. `system` message, `think`; `sampling`: instead of the
        model's own; `temperature`; `max_tokens` of a candidate. `step` is "mark:TEXT" or "tokens:N".
        `speculate` is "ngram(k=4)", "suffix(k=8)" or "draft(k=4)": another speed, the same solution, unless
        it says `verify=ratio`. `stop`: texts that end an answer and are no part of it.
        `prompt_logprobs`: `solution.prompt` has the prompt's tokens, with so many alternatives each.
        `schema`: the answer phase is JSON of this schema, and a complete `answer` is that JSON, keys sorted
        (extra `structured`). `tools`: what chains may call while they are written; each result is appended to
        its branch and charged. `tool_choice`: which of them, and whether a call must come (of tools that the
        caller runs).

        `namespace`: no KV is shared with another one. Rows of the engine are shared fairly between tenants:
        the `tenant`, else the namespace; within one, a higher `priority` goes first. `on_event` is called
        with each event, with `deltas` also as text comes (`Wrote`); what it raises is told in the notes, and
        the search goes on. `interrupt` ends the search with reason cancelled.

        Cancelling the call raises, after all branches were pruned. Raises `UsageError`, `CapabilityError`.
        """
        if isinstance(strategy, str):
            strategy = parse_strategy(strategy)
        run, prompt = self._maker.make(problem, budget or DEFAULT_BUDGET, strategy=strategy, **options)
        return await run_search(run, strategy, prompt, interrupt=interrupt)

    def stream(
        self,
        problem: str | Problem,
        strategy: Strategy | str = DEFAULT_STRATEGY,
        budget: Budget | None = None,
        *,
        interrupt: anyio.Event | None = None,
        **options: Unpack[RunOptions],
    ) -> AbstractAsyncContextManager[SolveStream]:
        """`solve` as the events of the search: `async for event in stream` until it ends, then
        `stream.solution`. Options as of `solve`.

        What the search raises, the iteration raises. Leaving the block early cancels the search.
        """
        solve = partial(self.solve, problem, strategy, budget)
        return open_stream(solve, interrupt=interrupt, **options)

    def session(
        self,
        problem: str | Problem | Sequence[int],
        budget: Budget | None = None,
        **options: Unpack[RunOptions],
    ) -> AbstractAsyncContextManager[SearchBranch]:
        """The root branch of a search by the caller's own code, under one budget. `problem` may be the
        prompt's token ids; options as of `solve`.

        The branch has all verbs of `strategies.base.Branch`, and the search's `budget` and `graph`. Past
        `Budget.seconds` extensions end with stop budget. Leaving the block prunes what grew from it.
        Raises `UsageError`, `CapabilityError`.
        """
        return open_session(self._maker, problem, budget or DEFAULT_BUDGET, options)

    def conversation(
        self,
        *,
        system: str | None = None,
        namespace: str = "",
        tenant: str | None = None,
        ttl_s: float = 600.0,
        messages: Sequence[Message] = (),
    ) -> AbstractAsyncContextManager[Conversation]:
        """A conversation whose KV is kept from one turn to the next, for at most `ttl_s` seconds after each;
        `messages` are turns before its first. Leaving the block gives the KV back.

        Raises `UsageError`.
        """
        if not ttl_s > 0:
            raise UsageError(f"ttl_s={ttl_s}: give more than 0 seconds")
        solve = partial(self.solve, namespace=namespace, tenant=tenant)
        kept = KeptPrefix(self.backend, ttl_s=ttl_s, namespace=namespace, tenant=tenant)
        return closing(Conversation(solve, kept, self._next_prefix, system=system, messages=messages))

    async def solve_many(
        self,
        problems: Sequence[str | Problem],
        strategy: Strategy | str = DEFAULT_STRATEGY,
        budget: Budget | None = None,
        *,
        tenants: Sequence[str | None] | None = None,
        at_once: int | None = None,
        interrupt: anyio.Event | None = None,
        **options: Unpack[RunOptions],
    ) -> list[Solution | Exception]:
        """Solve problems side by side on one engine; results in input order, an error in the place of its
        problem. `budget` is each problem's; give it a parent to bound them together.

        `tenants` names whose each problem is: the engine's rows are shared fairly between them, however many
        problems each has. `at_once` bounds how many are searched at a time, those of different tenants in
        turn. `interrupt` ends all searches. Other options as of `solve`.
        """
        whose = [options.get("tenant")] * len(problems) if tenants is None else tenants

        async def one(problem: str | Problem, tenant: str | None) -> Solution:
            its = RunOptions(**{**options, "tenant": tenant})
            return await self.solve(problem, strategy, budget, interrupt=interrupt, **its)

        return await solve_all(problems, one, whose, at_once)

    def _next_prefix(self, problem: Problem) -> tuple[int, ...]:
        return next_prefix(problem, self.source, self.models["policy"])


def solve(problem: str | Problem, strategy: Strategy | str = DEFAULT_STRATEGY, **options: Any) -> Solution:
    """Open a model, solve one problem, close it. Options of `Reasoner.open` and `Reasoner.solve` together."""
    if _in_event_loop():
        raise UsageError("solve() was called in a running event loop: there, await Reasoner.solve instead")
    opening = {key: options.pop(key) for key in _OPENING & options.keys()}

    async def once() -> Solution:
        async with Reasoner.open(**opening) as reasoner:
            return await reasoner.solve(problem, strategy, **options)

    return anyio.run(once)


@asynccontextmanager
async def _entered(
    engine: OpenEngine | Backend | None, model: str | None, options: OpenOptions
) -> AsyncIterator[OpenEngine]:
    if engine is None:
        async with open_engine("reference" if model is None else model, **options) as opened:
            yield opened
    elif isinstance(engine, OpenEngine):
        check_hosted(engine, model, options)
        yield engine
    else:
        async with settling(engine) as running:
            check_hosted(running, model, options)
            yield running


def _in_event_loop() -> bool:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True


_OPENING = {"model", "reproducible", *OpenOptions.__annotations__}
