"""From a problem's text to the prompt of a model."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import msgspec

from ..engine.errors import CapacityError, UsageError
from ..engine.plugins import registered
from ..engine.protocol import ModelInfo
from ..engine.text.tokenizer import HfTokenizer, Message
from ..verifiers.nearest import shown
from ..verifiers.problem import Problem, Task
from .source import ModelSource
from .tools.box import ToolBox

BOXED = "Reason step by step, and put your final answer within \\boxed{}."

TASKS = "branchwise.tasks"

_OPENING = 16
"""Tokens at the end of a prompt that may hold the marker: more than any has."""


class Prompt(msgspec.Struct, frozen=True):
    """Token ids for the policy, and what to tell the user about how they were made."""

    tokens: tuple[int, ...]
    notes: tuple[str, ...] = ()


def recognise(text: str) -> Task | None:
    """The task whose sentence `text` is. Raises `UsageError` where it is one that cannot be solved."""
    for point in registered(TASKS).values():
        task = point.load().recognise(text)
        if task is not None:
            return task
    return None


def _is_registered(task: Task | None) -> bool:
    """Whether a task is of a kind that a family of models may be trained on."""
    return any(type(task) is point.load() for point in registered(TASKS).values())


def read_problem(problem: Problem, source: ModelSource) -> Problem:
    """Bind the task of a family that reads nothing else. Raises `UsageError` for text that it cannot read."""
    if problem.prompt is not None:
        return problem
    if not problem.text.strip():
        raise UsageError("empty problem: give the text of the problem to solve")
    _check_text("problem", problem.text)
    _check_text("system message", problem.system or "")
    for message in (*problem.messages, *problem.since):
        _check_text(f"{message.role} message", message.content)
    if not source.tasks_only or _is_registered(problem.task):
        return problem
    task = recognise(problem.text)
    if task is None:
        shown = problem.text if len(problem.text) <= 60 else problem.text[:57] + "..."
        raise UsageError(
            f"problem {shown!r}: the model {source.name!r} cannot read it; it reads {source.solves}; "
            "for other problems name another model"
        )
    return msgspec.structs.replace(problem, task=task)


def _check_text(what: str, text: str) -> None:
    """Refuse the halves of characters that bytes of another encoding become on the command line."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} {shown(text)}: is not UTF-8 text; give it in UTF-8") from error


def make_prompt(
    problem: Problem,
    source: ModelSource,
    info: ModelInfo,
    *,
    think: bool | None,
    form: str | None = None,
    tools: ToolBox | None = None,
) -> Prompt:
    """Render the prompt. `form`: how the answer is to be given, in place of the model's usual system message.
    `tools` are told to a model that was not trained on its own.

    Raises `CapacityError` where it leaves no room in the context.
    """
    notes: list[str] = []
    if problem.prompt is not None:
        return Prompt(_fitting(list(problem.prompt), info))
    if source.tasks_only and problem.task is not None:
        if problem.system is not None:
            notes.append(f"the model {source.name} reads no system message: it was ignored")
        if problem.messages:
            notes.append(f"the model {source.name} reads no earlier turns: they were ignored")
        messages = [Message("user", problem.task.prompt()), *problem.since]
    else:
        messages = _messages(problem, info, form)
    tokens = tools.chat(messages, info, think=think) if tools else info.tokenizer.chat(messages, think=think)
    if think is False and info.profile.think_end is not None:
        tokens = _without_thinking(tokens, info)
    return Prompt(_fitting(tokens, info), tuple(notes))


def _fitting(tokens: Sequence[int], info: ModelInfo) -> tuple[int, ...]:
    """The prompt, where it leaves room to answer."""
    if len(tokens) >= info.max_model_len:
        raise CapacityError(
            f"prompt of {len(tokens)} tokens: the context of model {Path(info.source).name!r} holds "
            f"{info.max_model_len}, at least one of them for the answer; give a shorter problem, or a larger "
            "--max-model-len where the model can"
        )
    return tuple(tokens)


def document(text: str, info: ModelInfo) -> tuple[int, ...]:
    """Token ids of a text that the model is to go on from as it stands. Raises `UsageError`."""
    _check_text("prompt", text)
    tokenizer = info.tokenizer
    found = tokenizer.encode_document(text) if isinstance(tokenizer, HfTokenizer) else tokenizer.encode(text)
    return tuple(found)


def opens_thought(prompt: Sequence[int], info: ModelInfo) -> bool:
    """Whether a model that goes on from this prompt thinks before it answers: it ends with the marker that
    begins a thought, or the model needs none."""
    start = info.profile.think_start
    return start is None or info.tokenizer.decode(prompt[-_OPENING:]).rstrip().endswith(start.rstrip())


def next_prefix(problem: Problem, source: ModelSource, info: ModelInfo) -> tuple[int, ...]:
    """Token ids that the prompt begins with whatever `problem.text` will be; empty for a model that reads
    nothing but its tasks' prompts."""
    if source.tasks_only:
        return ()
    one, other = (
        info.tokenizer.chat(_messages(msgspec.structs.replace(problem, text=text), info))
        for text in ("A", "7")
    )
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(token for token, _ in alike)


def _messages(problem: Problem, info: ModelInfo, form: str | None = None) -> list[Message]:
    """The problem as chat turns, the model's usual system message first where there is no other."""
    system = problem.system
    if system is None and info.profile.final_answer == "boxed":
        system = form or BOXED
    first = [Message("system", system)] if system else []
    return [*first, *problem.messages, Message("user", problem.text), *problem.since]


def question(info: ModelInfo, text: str, *, think: bool | None) -> tuple[int, ...]:
    """The prompt of a user message to any open model; `think` False also ends its thinking before it
    began."""
    tokens = info.tokenizer.chat([Message("user", text)], think=think)
    if think is False and info.profile.think_end is not None:
        tokens = _without_thinking(tokens, info)
    return tuple(tokens)


def _without_thinking(tokens: list[int], info: ModelInfo) -> list[int]:
    """Prefill the end of thinking where the chat template did not."""
    end = info.profile.think_end or ""
    if end in info.tokenizer.decode(tokens[-16:]):
        return tokens
    return [*tokens, *info.tokenizer.encode(end)]
