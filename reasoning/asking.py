"""Questions of a verifier to a model, on roots of their own: metered like the search, pruned once
answered."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import anyio

from ..engine.errors import CapacityError, UsageError
from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from .clock import ASIDE
from .prompting import question
from .reading import read_logprobs

if TYPE_CHECKING:
    from .branch import SearchBranch

_ANSWERED = "answered"

Logprobs = tuple[float, ...] | None


async def choose(
    branch: "SearchBranch",
    prompt: str,
    options: Sequence[str],
    *,
    model: str,
    think: bool | None,
    normalise: bool,
) -> tuple[float, ...] | None:
    """Implements `verifiers.base.Lease.choose` for the branch that is judged."""
    if len(options) < 2 or len(set(options)) < len(options) or not all(options):
        raise UsageError(f"choose of {list(options)!r}: give two or more different texts, none empty")
    with _aside(branch, prompt, model, think) as root:
        if root is None:
            return None
        found = await _option_logprobs(root, [root.tokenizer.encode(option) for option in options])
    totals = [math.fsum(logprobs) for logprobs in found if logprobs is not None]
    if len(totals) < len(options):
        return None
    return _shares(totals) if normalise else tuple(math.exp(min(total, 0.0)) for total in totals)


async def write(
    branch: "SearchBranch",
    prompt: str,
    *,
    model: str,
    max_tokens: int,
    sampling: SamplingParams | None,
    think: bool | None,
) -> str | None:
    """Implements `verifiers.base.Lease.write` for the branch that is judged."""
    with _aside(branch, prompt, model, think) as root:
        if root is None:
            return None
        own = branch.run.model(root.model).sampling
        try:
            step = await root.extend(Until.END, max_tokens=max_tokens, sampling=sampling or own)
        except CapacityError:
            return None
        return _said(root, step.tokens) if step.tokens else None


@contextmanager
def _aside(
    branch: "SearchBranch", prompt: str, model: str, think: bool | None
) -> "Iterator[SearchBranch | None]":
    """A root with the question on it, None where it does not fit the model's context; pruned behind the
    block."""
    run = branch.run
    if model == "judge" and model not in run.models:
        model = run.policy
    info = run.model(model)
    tokens = question(info, prompt, think=think)
    if len(tokens) >= info.max_model_len:
        yield None
        return
    # Behind the second mark: the forks of a question on branch 0 are no questions on branch 0.0.
    path = (ASIDE, *branch.path, ASIDE, branch.asides)
    branch.asides += 1
    root = type(branch).open(run, path, tokens, prompt, model)
    try:
        yield root
    finally:
        root.prune(_ANSWERED)


async def _option_logprobs(root: "SearchBranch", options: Sequence[Sequence[int]]) -> list[Logprobs]:
    """The log-probabilities of each option's tokens behind the root's; None where they are not covered. All
    are read in one round, so that the prompt is computed once."""
    found: list[Logprobs] = [None] * len(options)
    forks = cast("list[SearchBranch]", root.fork(len(options)))
    failures: list[Exception] = []

    async def read(index: int) -> None:
        fork = forks[index]
        fork.busy = True
        try:
            found[index] = await read_logprobs(fork, fork.model, 0)
        except CapacityError:
            return
        except Exception as error:  # raised below: a task group would wrap it
            failures.append(error)
        finally:
            fork.busy = False

    try:
        for fork, option in zip(forks, options, strict=True):
            if len(option) > fork.room or (await fork.append(option)).stop is Stop.BUDGET:
                return found
        async with anyio.create_task_group() as group:
            for index in range(len(options)):
                group.start_soon(read, index)
    finally:
        for fork in forks:
            fork.prune(_ANSWERED)
    if failures:
        raise failures[0]
    return found


def _shares(totals: Sequence[float]) -> tuple[float, ...]:
    """Probabilities from log-probabilities, normalised; equal where all are impossible."""
    highest = max(totals)
    if highest == -math.inf:
        return (1.0 / len(totals),) * len(totals)
    weights = [math.exp(total - highest) for total in totals]
    whole = math.fsum(weights)
    return tuple(weight / whole for weight in weights)


def _said(root: "SearchBranch", tokens: Sequence[int]) -> str:
    """The text without end ids, and without what was thought before it."""
    profile = root.profile
    text = root.tokenizer.decode([token for token in tokens if token not in profile.stop_ids])
    if profile.think_end is not None and profile.think_end in text:
        text = text.rpartition(profile.think_end)[2]
    return text.strip()
