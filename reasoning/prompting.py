"""From a problem's text to the prompt of a model."""

from importlib.metadata import entry_points

import msgspec

from ..engine.errors import CapacityError, UsageError
from ..engine.protocol import ModelInfo
from ..engine.text.tokenizer import Message
from ..verifiers.nearest import shown
from ..verifiers.problem import Problem, Task
from .source import ModelSource

BOXED = "Reason step by step, and put your final answer within \\boxed{}."


class Prompt(msgspec.Struct, frozen=True):
    """Token ids for the policy, and what to tell the user about how they were made."""

    tokens: tuple[int, ...]
    notes: tuple[str, ...] = ()


def recognise(text: str) -> Task | None:
    """The task whose sentence `text` is. Raises `UsageError` where it is one that cannot be solved."""
    for point in entry_points(group="branchwise.tasks"):
        task = point.load().recognise(text)
        if task is not None:
            return task
    return None


def _is_registered(task: Task | None) -> bool:
    """Whether a task is of a kind that a family of models may be trained on."""
    return any(type(task) is point.load() for point in entry_points(group="branchwise.tasks"))


def read_problem(problem: Problem, source: ModelSource) -> Problem:
    """Bind the task of a family that reads nothing else. Raises `UsageError` for text that it cannot read."""
    if not problem.text.strip():
        raise UsageError("empty problem: give the text of the problem to solve")
    _check_text("problem", problem.text)
    _check_text("system message", problem.system or "")
    if not source.tasks_only or _is_registered(problem.task):
        return problem
    task = recognise(problem.text)
    if task is None:
        shown = problem.text if len(problem.text) <= 60 else problem.text[:57] + "..."
        raise UsageError(
            f"problem {shown!r}: the model {source.name!r} cannot read it; {source.solves}; "
            "for other problems name another model with --model"
        )
    return msgspec.structs.replace(problem, task=task)


def _check_text(what: str, text: str) -> None:
    """Refuse the halves of characters that bytes of another encoding become on the command line."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} {shown(text)}: is not UTF-8 text; give it in UTF-8") from error


def make_prompt(problem: Problem, source: ModelSource, info: ModelInfo, *, think: bool | None) -> Prompt:
    """Render the prompt. Raises `CapacityError` where it leaves no room in the context."""
    notes: list[str] = []
    messages: list[Message] = []
    if source.tasks_only and problem.task is not None:
        if problem.system is not None:
            notes.append(f"the model {source.name} reads no system message: it was ignored")
        messages.append(Message("user", problem.task.prompt()))
    else:
        system = problem.system
        if system is None and info.profile.final_answer == "boxed":
            system = BOXED
        if system:
            messages.append(Message("system", system))
        messages.append(Message("user", problem.text))
    tokens = info.tokenizer.chat(messages, think=think)
    if think is False and info.profile.think_end is not None:
        tokens = _without_thinking(tokens, info)
    if len(tokens) >= info.max_model_len:
        raise CapacityError(
            f"prompt of {len(tokens)} tokens: the context of model {info.source!r} holds "
            f"{info.max_model_len}, at least one of them for the answer; give a shorter problem, or a larger "
            "--max-model-len where the model can"
        )
    return Prompt(tuple(tokens), tuple(notes))


def _without_thinking(tokens: list[int], info: ModelInfo) -> list[int]:
    """Prefill the end of thinking where the chat template did not."""
    end = info.profile.think_end or ""
    if end in info.tokenizer.decode(tokens[-16:]):
        return tokens
    return [*tokens, *info.tokenizer.encode(end)]
