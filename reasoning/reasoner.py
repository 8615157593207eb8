"""The facade: models opened once, problems solved side by side."""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog

from ..engine.errors import UsageError
from ..engine.memory_plan import MemoryPlan
from ..engine.protocol import Backend, ModelInfo
from ..strategies.base import Strategy
from ..strategies.grammar import parse_strategy
from ..verifiers.base import Verifier
from ..verifiers.problem import Problem
from .budget import Budget
from .events import Event
from .pairing import check_pairing, choose_verifier
from .prompting import make_prompt, read_problem
from .run import Run
from .settle import Settler
from .solution import Solution
from .solve import run_search
from .source import ModelSource
from .speculating import checked_speculate
from .stepping import parse_step

DEFAULT_BUDGET = Budget(tokens=16384)
DEFAULT_STRATEGY = "best_of_n(n=16)"


class Reasoner:
    """Solves problems on models that stay open.

    Made by `Reasoner.open` (models), or `Reasoner.over` (a back end of one's own). `reproducible`: the same
    seed gives the same solution whatever else runs (all but `usage.engine`).
    """

    def __init__(
        self, backend: Backend, source: ModelSource, settler: Settler, *, reproducible: bool
    ) -> None:
        self.backend = backend
        self.source = source
        self.reproducible = reproducible
        self._settler = settler

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """How the models share the memory, None where the back end does not know."""
        return getattr(self.backend, "memory_plan", None)

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The open models by role: policy, draft, prm."""
        return self.backend.models

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        model: str = "reference",
        *,
        draft: str | None = None,
        prm: str | None = None,
        adapter: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        kv_memory: int | None = None,
        max_model_len: int | None = None,
        max_step_tokens: int | None = None,
        reproducible: bool | None = None,
        deterministic: bool | None = None,
    ) -> "AsyncIterator[Reasoner]":
        """Open models by `--model`'s names (design section 7), the policy with the LoRA adapter of the PEFT
        folder `adapter`. `kv_memory` in bytes, for all of them together.

        Raises `ModelLoadError` in one line.
        """
        from .opening import open_engine

        if not structlog.is_configured():  # a library is quiet until its user says what to log
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        settler = Settler()
        opened = await open_engine(
            model,
            draft=draft,
            prm=prm,
            adapter=adapter,
            device=device,
            dtype=dtype,
            threads=threads,
            kv_memory=kv_memory,
            max_model_len=max_model_len,
            max_step_tokens=max_step_tokens,
            deterministic=deterministic,
            settle=settler.settle,
            due=settler.due,
        )
        async with opened.engine:
            chosen = opened.source.reproducible if reproducible is None else reproducible
            async with cls.over(
                opened.engine, source=opened.source, reproducible=chosen, settler=settler
            ) as reasoner:
                yield reasoner

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
        settler = settler or Settler()
        source = source or ModelSource(name=backend.models["policy"].source, policy=Path())
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(settler.run)
            try:
                yield cls(backend, source, settler, reproducible=reproducible)
            except Exception as error:  # raised below: a task group would wrap it
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def solve(
        self,
        problem: str | Problem,
        strategy: Strategy | str = DEFAULT_STRATEGY,
        budget: Budget | None = None,
        *,
        verifier: Verifier | str | None = None,
        oracle: bool = False,
        seed: int | None = None,
        problem_id: str = "",
        system: str | None = None,
        think: bool | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        step: str | None = None,
        speculate: str | None = None,
        namespace: str = "",
        on_event: Callable[[Event], None] | None = None,
        interrupt: anyio.Event | None = None,
    ) -> Solution:
        """Solve one problem; see `Solution` for what comes back whatever ended it.

        `seed` None draws one and reports it. `problem_id` (default: the text) tells problems of one run
        apart. `step` is "mark:TEXT" or "tokens:N". `speculate` is "ngram(k=4)", "suffix(k=8)" or
        "draft(k=4)": another speed, the same solution, unless it says `verify=ratio`. `interrupt` ends the
        search with reason cancelled.
        Raises `UsageError`, `CapabilityError`.
        """
        if isinstance(strategy, str):
            strategy = parse_strategy(strategy)
        if isinstance(problem, str):
            problem = Problem(text=problem, id=problem_id, system=system)
        problem = read_problem(problem, self.source)
        info = self.models["policy"]
        prompt = make_prompt(problem, self.source, info, think=think)
        if not isinstance(verifier, str | None):
            chosen: Verifier | None = verifier
        else:
            chosen = choose_verifier(verifier, problem, self.backend)
        check_pairing(strategy, chosen, self.backend, oracle=oracle)
        sampling = info.sampling
        if temperature is not None:
            sampling = msgspec.structs.replace(sampling, temperature=_checked_temperature(temperature))
        stepping = parse_step(step)
        run = Run(
            backend=self.backend,
            model_name=self.source.name,
            problem=problem,
            budget=budget or DEFAULT_BUDGET,
            seed=secrets.randbits(32) if seed is None else seed,
            verifier=chosen,
            sampling=sampling,
            settler=self._settler if self.reproducible else None,
            step_mark=stepping.mark,
            tokens_per_step=stepping.tokens,
            max_tokens=max_tokens,
            think=think,
            speculate=checked_speculate(speculate, self.backend),
            namespace=namespace,
            on_event=on_event,
        )
        run.notes.extend(prompt.notes)
        if chosen is not None and chosen.oracle:
            run.notes.append(f"oracle: verifier {chosen.name} recomputes the answer")
        return await run_search(run, strategy, prompt.tokens, interrupt=interrupt)

    async def solve_many(
        self, problems: Sequence[str | Problem], strategy: Strategy | str = DEFAULT_STRATEGY, **options: Any
    ) -> list[Solution | Exception]:
        """Solve problems side by side on one engine; results in input order, an error in the place of its
        problem."""
        results: dict[int, Solution | Exception] = {}

        async def one(index: int, problem: str | Problem) -> None:
            try:
                results[index] = await self.solve(problem, strategy, **options)
            except Exception as error:
                results[index] = error

        async with anyio.create_task_group() as group:
            for index, problem in enumerate(problems):
                group.start_soon(one, index, problem)
        return [results[index] for index in range(len(problems))]


def solve(problem: str | Problem, strategy: Strategy | str = DEFAULT_STRATEGY, **options: Any) -> Solution:
    """Open a model, solve one problem, close it. Options of `Reasoner.open` and `Reasoner.solve` together."""
    if _in_event_loop():
        raise UsageError("solve() was called in a running event loop: there, await Reasoner.solve instead")
    opening = {key: options.pop(key) for key in list(options) if key in _OPENING}

    async def once() -> Solution:
        async with Reasoner.open(**opening) as reasoner:
            return await reasoner.solve(problem, strategy, **options)

    return anyio.run(once)


def _in_event_loop() -> bool:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True


_OPENING = frozenset(
    {
        "model",
        "draft",
        "prm",
        "adapter",
        "device",
        "dtype",
        "threads",
        "kv_memory",
        "max_model_len",
        "max_step_tokens",
        "reproducible",
        "deterministic",
    }
)


def _checked_temperature(value: float) -> float:
    if not 0.0 <= value <= 100.0:
        raise UsageError(f"temperature={value}: give a number from 0 (greedy) to 100")
    return value
