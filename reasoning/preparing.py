"""From a problem and the options of a call to a run that is ready to search."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import msgspec

from ..engine.errors import UsageError
from ..engine.protocol import Backend
from ..engine.sampling.params import SamplingParams
from ..strategies.base import Strategy
from ..verifiers.base import Verifier
from ..verifiers.problem import Problem
from .answer_schema import open_schema
from .budget import Budget
from .events import Event
from .pairing import (
    check_budget,
    check_pairing,
    check_reads,
    check_verifier,
    choose_step_verifier,
    choose_verifier,
)
from .prompting import Prompt, make_prompt, opens_thought, read_problem
from .run import Run
from .settle import Settler
from .shared import check_limits
from .source import ModelSource
from .speculating import checked_speculate
from .stepping import parse_step
from .tools.box import open_tools
from .tools.choice import AUTO, ToolChoice
from .tools.tool import Tool

DEFAULT_BUDGET = Budget(tokens=16384)
DEFAULT_STRATEGY = "best_of_n(n=16)"


class RunOptions(TypedDict, total=False):
    """What can be said of a search besides problem, strategy and budget; see `Reasoner.solve`."""

    verifier: Verifier | str | None
    oracle: bool
    seed: int | None
    problem_id: str
    system: str | None
    think: bool | None
    temperature: float | None
    sampling: SamplingParams | None
    max_tokens: int | None
    step: str | None
    speculate: str | None
    stop: Sequence[str]
    prompt_logprobs: int | None
    schema: Mapping[str, Any] | None
    tools: Sequence[Tool]
    tool_choice: ToolChoice
    namespace: str
    tenant: str | None
    priority: int
    on_event: Callable[[Event], None] | None
    deltas: bool


class Prepared(NamedTuple):
    """A run, and the prompt of its first root."""

    run: Run
    prompt: tuple[int, ...]


class RunMaker:
    """Makes the runs of one reasoner. `settler` None: by the wall clock, not reproducible."""

    def __init__(self, backend: Backend, source: ModelSource, settler: Settler | None) -> None:
        self._backend = backend
        self._source = source
        self._settler = settler

    def make(
        self,
        problem: str | Problem | Sequence[int],
        budget: Budget,
        *,
        strategy: Strategy | None = None,
        verifier: Verifier | str | None = None,
        oracle: bool = False,
        seed: int | None = None,
        problem_id: str = "",
        system: str | None = None,
        think: bool | None = None,
        temperature: float | None = None,
        sampling: SamplingParams | None = None,
        max_tokens: int | None = None,
        step: str | None = None,
        speculate: str | None = None,
        stop: Sequence[str] = (),
        prompt_logprobs: int | None = None,
        schema: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        tool_choice: ToolChoice = AUTO,
        namespace: str = "",
        tenant: str | None = None,
        priority: int = 0,
        on_event: Callable[[Event], None] | None = None,
        deltas: bool = False,
    ) -> Prepared:
        """A run by `Reasoner.solve`'s options. `problem` may be the prompt's token ids; `strategy` None: the
        caller's own code will search.

        Raises `UsageError`, `CapabilityError`.
        """
        backend = self._backend
        info = backend.models["policy"]
        form = open_schema(schema, backend)
        box = open_tools(tools, tool_choice, backend, constrained=form is not None)
        if isinstance(problem, str):
            problem = Problem(text=problem, id=problem_id, system=system)
        elif system is not None or (problem_id and isinstance(problem, Problem)):
            name, value = ("problem_id", problem_id) if system is None else ("system", system)
            raise UsageError(
                f"{name}={value[:60]!r} beside a problem that is no text: give it as a field of a Problem"
            )
        if isinstance(problem, Problem):
            problem = read_problem(problem, self._source)
            if problem.prompt is not None and think is None and not opens_thought(problem.prompt, info):
                think = False
            prompt = make_prompt(
                problem, self._source, info, think=think, form=form and form.instruction, tools=box
            )
        else:
            prompt = Prompt(tuple(problem))
            problem = Problem(text=info.tokenizer.decode(prompt.tokens), id=problem_id)
        if not isinstance(verifier, str | None):
            chosen: Verifier | None = verifier
        else:
            chosen = choose_verifier(verifier, problem, backend)
        steps = choose_step_verifier(chosen, problem, backend)
        if strategy is not None:
            check_pairing(strategy, chosen, steps, backend, oracle=oracle)
        elif chosen is not None:
            check_verifier(chosen, backend, oracle=oracle)
        check_reads(chosen, self._source, backend)
        check_budget(budget, backend)
        if prompt_logprobs is None or max_tokens != 0:  # a prompt can be scored and nothing written
            check_limits("option", max_tokens=max_tokens)
        sampling = sampling or info.sampling
        if temperature is not None:
            sampling = msgspec.structs.replace(sampling, temperature=_checked_temperature(temperature))
        stepping = parse_step(step)
        run = Run(
            backend=backend,
            model_name=self._source.name,
            problem=problem,
            budget=budget,
            seed=secrets.randbits(32) if seed is None else seed,
            verifier=chosen,
            step_verifier=steps,
            sampling=sampling,
            stats_top_k=max(getattr(wanting, "stats_top_k", 0) for wanting in (chosen, steps)),
            settler=self._settler,
            step_mark=stepping.mark,
            tokens_per_step=stepping.tokens,
            max_tokens=max_tokens,
            think=think,
            speculate=checked_speculate(speculate, backend),
            stop=stop,
            prompt_logprobs=prompt_logprobs,
            schema=form,
            tools=box,
            namespace=namespace,
            tenant=tenant,
            priority=priority,
            on_event=on_event,
            deltas=deltas,
        )
        run.notes.extend((*prompt.notes, *getattr(backend, "notes", ())))
        if strategy is not None and not strategy.is_lossless():
            run.notes.append("not lossless: it changes the distribution that the policy writes from")
        if chosen is not None and chosen.oracle:
            run.notes.append(f"oracle: verifier {chosen.name} recomputes the answer")
        return Prepared(run, prompt.tokens)


def _checked_temperature(value: float) -> float:
    if not 0.0 <= value <= 100.0:
        raise UsageError(f"temperature={value}: give a number from 0 (greedy) to 100")
    return value
