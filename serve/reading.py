"""From the body of a request to the searches that it asks for."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..engine.protocol import ModelInfo
from ..engine.sampling.params import SamplingParams
from ..reasoning.budget import Budget
from ..reasoning.cli.quantity import parse_budget
from ..reasoning.tools.choice import AUTO, ToolChoice
from ..reasoning.tools.tool import Tool
from ..strategies.base import Strategy
from ..strategies.grammar import parse_strategy
from ..strategies.greedy import Greedy
from ..verifiers.calls import format_call, format_value
from ..verifiers.problem import Problem
from .errors import ApiError, bad_request
from .messages import read_messages
from .prompts import Prompts
from .schema import (
    MOST_CANDIDATES,
    Asking,
    BudgetSpec,
    ChatRequest,
    CompletionRequest,
    ResponseFormat,
)
from .settings import EFFORTS, LIMITS, Settings
from .tools import read_choice, read_tools

LONGEST_STRATEGY = 4000
"""Characters of a strategy's text."""

_DIVIDED = ("tokens", "flops", "answer_reserve")


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One search of a request: choice `index` of it. `stop`: what ends each candidate. `echo`: the prompt,
    where the client wants it before the completion, `echoed` the alternatives to tell with each of its
    tokens."""

    index: int
    problem: Problem
    strategy: Strategy
    budget: Budget
    seed: int | None
    sampling: SamplingParams
    max_tokens: int | None
    think: bool | None = None
    schema: dict[str, Any] | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    stop: tuple[str, ...] = ()
    echo: str = ""
    echoed: int | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was read: its searches, `choices` for each prompt, and how to answer.

    `tokens` is the most that they may spend together; `logprobs` the alternatives to tell with each token,
    None for no log-probabilities.
    """

    asks: tuple[Ask, ...]
    choices: int
    model: str
    tokens: int
    stops: tuple[str, ...]
    logprobs: int | None
    stream: bool
    stream_usage: bool
    search_events: bool


def read_chat(body: ChatRequest, settings: Settings, info: ModelInfo) -> Call:
    """The searches of a chat with the served model. Raises `ApiError` and `UsageError`."""
    problem, tools, choice = read_messages(body.messages), read_tools(body), read_choice(body)
    if problem.since and not tools:
        raise bad_request("messages: a call of a tool needs the tools", param="tools")
    logprobs = None if not body.logprobs else (body.top_logprobs or 0)
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs: needs logprobs: true", param="top_logprobs")
    schema = read_format(body.response_format)
    return _call(body, settings, info, [problem], logprobs, schema, tools, choice)


def read_completion(body: CompletionRequest, settings: Settings, info: ModelInfo, prompts: Prompts) -> Call:
    """The searches of a completion, those of the first prompt first. Raises `ApiError` and `UsageError`."""
    if body.suffix:
        raise bad_request(
            "suffix: the model goes on from a prompt and fills no gap; leave it out",
            param="suffix",
            code="unsupported_parameter",
        )
    read = prompts.read(body.prompt)
    echoed = body.logprobs if body.echo else None
    if (echoed is not None or body.max_tokens == 0) and any(one.problem.prompt is None for one in read):
        raise bad_request(
            "prompt: this model puts a text in a form of its own; give token ids to have them scored",
            param="prompt",
        )
    if body.max_tokens == 0 and echoed is None:
        raise bad_request(
            "max_tokens: 0 leaves nothing to write; give echo and logprobs too, or more", param="max_tokens"
        )
    asked = body
    if body.best_of is not None:
        asked = msgspec.structs.replace(body, strategy=_best_of(body, settings))
    call = _call(asked, settings, info, [problem for problem, _ in read], body.logprobs)
    asks = tuple(
        msgspec.structs.replace(
            ask,
            echo=read[ask.index // call.choices].text if body.echo else "",
            echoed=echoed,
            stop=call.stops if ask.problem.prompt is not None else (),
            strategy=Greedy() if body.max_tokens == 0 else ask.strategy,
            think=False if body.max_tokens == 0 else ask.think,
        )
        for ask in call.asks
    )
    return msgspec.structs.replace(call, asks=asks)


def _best_of(body: CompletionRequest, settings: Settings) -> str:
    if body.strategy is not None or read_model(body.model, settings) is not None:
        raise bad_request("best_of: a strategy was named already; give one of the two", param="best_of")
    if (body.n or 1) > 1:
        raise bad_request("best_of: with n=1 only; give n alone for several answers", param="best_of")
    return f"best_of_n(n={body.best_of}, select=mean_logprob)"


def read_format(form: ResponseFormat | None) -> dict[str, Any] | None:
    """The JSON schema of the answer, None for free text. Raises `ApiError`."""
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    if form.json_schema is None:
        raise bad_request("response_format: json_schema is missing", param="response_format")
    return form.json_schema.schema


def read_model(name: str, settings: Settings) -> str | None:
    """The strategy that a model's name asks for, None for the plain name. Raises `ApiError` 404."""
    if name == settings.name:
        return None
    prefix = f"{settings.name}:"
    if not name.startswith(prefix) or not name[len(prefix) :].strip():
        raise ApiError(
            404,
            f"model {name[:200]!r}: not served here; give {settings.name!r}, or {prefix}STRATEGY as "
            "/v1/models lists them",
            kind="not_found_error",
            param="model",
            code="model_not_found",
        )
    return name[len(prefix) :]


def read_strategy(value: str | Mapping[str, Any]) -> Strategy:
    """A strategy from the grammar, or from an object with its name as `type`, nested ones alike."""
    try:
        text = value if isinstance(value, str) else _written(value)
        if len(text) <= LONGEST_STRATEGY:
            return parse_strategy(text)
    except (RecursionError, MemoryError):  # Python's own parser, on brackets without end
        raise bad_request("strategy: nested too deeply", param="strategy") from None
    raise bad_request(
        f"strategy of {len(text)} characters: give at most {LONGEST_STRATEGY}", param="strategy"
    )


def read_budget(body: Asking, settings: Settings) -> Budget:
    """The limits of the whole request: what it gives, else its effort's, else the default; within the
    ceiling.

    Raises `ApiError` for a limit above the ceiling.
    """
    given = body.budget
    if isinstance(given, str):
        budget = parse_budget(given)
    elif isinstance(given, BudgetSpec):
        budget = given.as_budget()
    else:
        budget = settings.budget
        if body.reasoning_effort in EFFORTS:
            budget = msgspec.structs.replace(budget, tokens=EFFORTS[body.reasoning_effort])
        return _capped(_within(budget, settings.ceiling), body.max_completion_tokens)
    for name in LIMITS:
        asked, most = getattr(budget, name), getattr(settings.ceiling, name)
        if asked is not None and most is not None and asked > most:
            raise bad_request(
                f"budget {name}={asked}: this server allows at most {most}",
                param="budget",
                code="budget_too_large",
            )
    return _capped(_within(budget, settings.ceiling), body.max_completion_tokens)


def _call(
    body: Asking,
    settings: Settings,
    info: ModelInfo,
    problems: Sequence[Problem],
    logprobs: int | None,
    schema: dict[str, Any] | None = None,
    tools: tuple[Tool, ...] = (),
    choice: ToolChoice = AUTO,
) -> Call:
    strategy, budget = _strategy(body, settings), read_budget(body, settings)
    choices = body.n or 1
    count = len(problems) * choices
    share = divided(budget, count)
    _check_candidates(strategy, count)
    sampling = _sampling(body, info, logprobs)
    asks = tuple(
        Ask(
            index=index,
            problem=_numbered(problems[index // choices], index),
            strategy=strategy,
            budget=share,
            seed=body.seed,
            sampling=sampling,
            max_tokens=body.max_tokens,
            think=False if body.reasoning_effort == "none" else None,
            schema=schema,
            tools=tools,
            tool_choice=choice,
        )
        for index in range(count)
    )
    options = body.stream_options
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return Call(
        asks=asks,
        choices=choices,
        model=body.model,
        tokens=(share.tokens or 0) * count,
        stops=stops,
        logprobs=logprobs,
        stream=bool(body.stream),
        stream_usage=options is not None and options.include_usage,
        search_events=options is not None and options.search_events,
    )


def _check_candidates(strategy: Strategy, count: int) -> None:
    """Raises `ApiError` where the choices of one request would open more candidates at once than a server can
    hold beside those of others."""
    each = _candidates(strategy)
    if count > 1 and each * count > MOST_CANDIDATES:
        raise bad_request(
            f"n: {count} choices of {each} candidates; give fewer, at most {MOST_CANDIDATES} in all",
            param="n",
        )


def _candidates(strategy: Strategy) -> int:
    """How many a strategy asks for by its `n`, and by those of the strategies inside it."""
    fields = [getattr(strategy, name) for name in strategy.__struct_fields__]
    inner = max((_candidates(field) for field in fields if isinstance(field, Strategy)), default=1)
    return (getattr(strategy, "n", None) or 1) * inner


def divided(budget: Budget, count: int) -> Budget:
    """The part of one of `count` searches. Raises `ApiError` where some would get nothing."""
    if count == 1:
        return budget
    parts: dict[str, int | None] = {}
    for name in _DIVIDED:
        value = getattr(budget, name)
        parts[name] = None if value is None else value // count
        if value is not None and parts[name] == 0 and name != "answer_reserve":
            raise bad_request(
                f"budget {name}={value}: is shared by {count} choices; give more", param="budget"
            )
    return msgspec.structs.replace(budget, **parts)


def _strategy(body: Asking, settings: Settings) -> Strategy:
    named = read_model(body.model, settings)
    if named is not None and body.strategy is not None:
        raise bad_request("strategy: the model's name has one already; give one of the two", param="strategy")
    wanted = body.strategy if named is None else named
    return settings.strategy if wanted is None else read_strategy(wanted)


def _numbered(problem: Problem, index: int) -> Problem:
    """Two choices of one problem are two problems to their seeds; the first is seeded as if it were alone."""
    return problem if index == 0 else msgspec.structs.replace(problem, id=f"{problem.text}#{index}")


def _sampling(body: Asking, info: ModelInfo, logprobs: int | None) -> SamplingParams:
    """The model's own sampling with what the request changes."""
    names = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
    given = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
    if logprobs:
        given["top_logprobs"] = logprobs
    if body.logit_bias:
        given["logit_bias"] = read_bias(body.logit_bias, info)
    return msgspec.structs.replace(info.sampling, **given) if given else info.sampling


def read_bias(biases: Mapping[str, float], info: ModelInfo) -> dict[int, float]:
    """The biases by token id. Raises `ApiError` for what is no id of the model."""
    ids = min(info.vocab_size, info.tokenizer.vocab_size)
    read: dict[int, float] = {}
    for name, bias in biases.items():
        token = int(name) if name.isascii() and name.isdecimal() and len(name) < 10 else ids
        if token >= ids:
            raise bad_request(
                f"logit_bias: {name[:40]!r} is no token id of this model; give ids from 0 to {ids - 1}",
                param="logit_bias",
            )
        read[token] = bias
    return read


def _within(budget: Budget, ceiling: Budget) -> Budget:
    """Each limit the smaller of both, where there are two."""
    limits: dict[str, Any] = {}
    for name in LIMITS:
        both = [value for value in (getattr(budget, name), getattr(ceiling, name)) if value is not None]
        limits[name] = min(both, default=None)
    return Budget(**limits, answer_reserve=_reserve(budget.answer_reserve, limits["tokens"]))


def _capped(budget: Budget, tokens: int | None) -> Budget:
    """`budget` with no more than `tokens`."""
    if tokens is None or (budget.tokens is not None and budget.tokens <= tokens):
        return budget
    return msgspec.structs.replace(
        budget, tokens=tokens, answer_reserve=_reserve(budget.answer_reserve, tokens)
    )


def _reserve(reserve: int | None, tokens: int | None) -> int | None:
    """A reserve that leaves something to think with; None, the usual one, where it would not."""
    return None if reserve is None or tokens is None or reserve >= tokens else reserve


def _written(value: Mapping[str, Any]) -> str:
    """The text of a strategy that came as an object."""
    kind = value.get("type")
    if not isinstance(kind, str) or not kind.isidentifier():
        raise bad_request(
            'strategy: an object needs its name as "type", such as "best_of_n"', param="strategy"
        )
    for name in value:
        if not name.isidentifier():
            raise bad_request(
                f"strategy {kind}: {name[:60]!r} is not the name of a parameter", param="strategy"
            )
    fields = {name: format_value(field, _nested) for name, field in value.items() if name != "type"}
    return format_call(kind, fields)


def _nested(value: Any) -> str | None:
    return _written(value) if isinstance(value, Mapping) else None


def _unsupported(name: str) -> ApiError:
    return bad_request(
        f"{name}: not supported by this server; leave it out", param=name, code="unsupported_parameter"
    )
