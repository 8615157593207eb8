"""Strategies inside inspect_ai: the model provider `branchwise`, and the solver `branchwise/search` over it.

The provider's answer is a search's: inspect_ai counts its usage, and its transcript shows the call. It finds
both by the entry point group `inspect_ai`.
"""

from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import msgspec
from inspect_ai.log import transcript  # pyright: ignore[reportMissingImports]
from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    get_model,
    modelapi,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver  # pyright: ignore[reportMissingImports]
from inspect_ai.tool import ToolChoice, ToolInfo  # pyright: ignore[reportMissingImports]

from ...engine.errors import BranchwiseError, UsageError
from ...reasoning.cli.quantity import DEFAULT_BUDGET
from ...reasoning.reasoner import DEFAULT_STRATEGY
from ...reasoning.solution import Reason, Solution
from ...verifiers.problem import Problem
from .arguments import read_arguments
from .inspect_usage import usage_of
from .reasoner_thread import shared_reasoner
from .texts import Parts, parts_of


@modelapi(name="branchwise")
class SearchAPI(ModelAPI):
    """Each generation is a search: `--model branchwise/reference -M strategy=greedy -M budget=tokens=1024`.

    Model arguments are the fields of `Opening` and `Solving`. The `seed`, `temperature`
    and `max_tokens` (of a candidate) of a call go before them. Without any seed each call draws one.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        self._opening, self._solving = read_arguments({**model_args, "model": model_name})

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Solve the problem of the last user message. Raises `UsageError` for tools and earlier turns,
        `BranchwiseError` where the search failed."""
        if tools:
            names = ", ".join(tool.name for tool in tools)
            raise UsageError(f"tools {names}: a search calls none; give a task without tools")
        system, text = _problem(input)
        options = self._solving.options()
        for name, value in (
            ("seed", config.seed),
            ("temperature", config.temperature),
            ("max_tokens", config.max_tokens),
        ):
            if value is not None:
                options[name] = value
        thread = await anyio.to_thread.run_sync(shared_reasoner, self._opening)
        own_system = options.pop("system")
        problem = Problem(text=text, system=own_system if system is None else system)
        solution = await thread.solve(problem, **options)
        if solution.reason is Reason.FAILED:
            raise BranchwiseError(f"the search failed: {solution.error}")
        return make_output(solution, self.model_name, parts_of(solution, thread.reasoner.models["policy"]))


@solver
def search(
    strategy: str = DEFAULT_STRATEGY,
    budget: str = DEFAULT_BUDGET,
    model: str = "reference",
    seed: int = 0,
    verifier: str | None = None,
    draft: str | None = None,
    prm: str | None = None,
    judge: str | None = None,
    device: str = "auto",
) -> Solver:
    """Solve each sample by a search under a budget; epoch k of a sample has the seed `seed + k - 1`.

    The whole solution stands in the sample's metadata under `branchwise`, each candidate in its transcript.
    """
    searching = get_model(
        f"branchwise/{model}",
        strategy=strategy,
        budget=budget,
        verifier=verifier,
        draft=draft,
        prm=prm,
        judge=judge,
        device=device,
    )

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        config = GenerateConfig(seed=seed + state.epoch - 1)
        state.output = await searching.generate(state.messages, config=config)
        state.messages.append(state.output.message)
        solved = (state.output.metadata or {})["branchwise"]
        state.metadata["branchwise"] = {"budget": budget, **solved}
        for candidate in solved["candidates"]:
            transcript().info(candidate, source=f"branchwise candidate {candidate['id']}")
        return state

    return solve


def make_output(solution: Solution, model: str, parts: Parts) -> ModelOutput:
    """What inspect_ai keeps of a solution: the conclusion as text, the thinking as reasoning."""
    thinking = [ContentReasoning(reasoning=parts.thinking)] if parts.thinking else []
    message = ChatMessageAssistant(
        content=[*thinking, ContentText(text=parts.conclusion)], model=model, source="generate"
    )
    cut = solution.reason in (Reason.BUDGET, Reason.DEADLINE)
    return ModelOutput(
        model=model,
        choices=[ChatCompletionChoice(message=message, stop_reason="max_tokens" if cut else "stop")],
        usage=usage_of(solution.usage),
        time=solution.usage.engine.get("seconds"),
        metadata={"branchwise": msgspec.to_builtins(solution.as_json())},
    )


def _problem(messages: Sequence[ChatMessage]) -> tuple[str | None, str]:
    """The system message, if any, and the problem: the one user message."""
    systems = [message.text for message in messages if isinstance(message, ChatMessageSystem)]
    others = [message for message in messages if not isinstance(message, ChatMessageSystem)]
    match others:
        case [ChatMessageUser() as user]:
            return "\n\n".join(systems) or None, user.text
    roles = ", ".join(message.role for message in others) or "none"
    raise UsageError(f"messages of {roles}: a search reads one user message; give a task of one turn")
