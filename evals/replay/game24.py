"""Readers of the logs of Tree of Thoughts on Game of 24 (Yao et al. 2023): sampled chains, and trees."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from .recording import Completion, RecordedProblem, Recording, apportioned

_ANSWER = re.compile(r"^answer:\s*(.*?)\s*$", re.IGNORECASE | re.MULTILINE)


class Infos(msgspec.Struct, frozen=True):
    """The reward of one output: 1 for a right one."""

    r: float


class Usage(msgspec.Struct, frozen=True):
    """Tokens of all problems up to this one."""

    completion_tokens: int
    prompt_tokens: int


class Chains(msgspec.Struct, frozen=True):
    """One problem of a log of chains."""

    idx: int
    ys: list[str]
    infos: list[Infos]
    usage_so_far: Usage | None = None


class Level(msgspec.Struct, frozen=True):
    """One level of a tree: its inputs, and what came of them."""

    x: str
    ys: list[str]
    new_ys: list[str]
    values: list[float]
    select_new_ys: list[str]


class Tree(msgspec.Struct, frozen=True):
    """One problem of a log of trees: levels, and the outputs kept at the end, best first."""

    idx: int
    steps: list[Level]
    ys: list[str]
    infos: list[Infos]
    usage_so_far: Usage | None = None


class TreeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorded tree search came to: `kept`, one verdict per kept output, best first; and what it cost.
    A tree is no sample: nothing can be estimated from parts of it."""

    id: str
    kept: tuple[bool, ...]
    prompt_tokens: int | None
    completion_tokens: int | None


def read_chains(entries: Iterable[Any], name: str) -> Recording:
    """Sampled chains as a recording. Tokens are recorded per problem: each chain gets its share by length."""
    problems = []
    log = msgspec.convert(list(entries), list[Chains])
    for chains, used in zip(log, _spent([entry.usage_so_far for entry in log]), strict=True):
        if used is None:
            tokens: Sequence[int | None] = [None] * len(chains.ys)
        else:
            tokens = apportioned(used.completion_tokens, [len(text) for text in chains.ys])
        completions = tuple(
            Completion(text=text, answer=answer_of(text), correct=info.r == 1, tokens=count)
            for text, info, count in zip(chains.ys, chains.infos, tokens, strict=True)
        )
        problems.append(
            RecordedProblem(
                id=f"game24:{chains.idx}",
                problem=f"Game of 24, number {chains.idx}",
                completions=completions,
                prompt_tokens=None if used is None else used.prompt_tokens,
            )
        )
    return Recording(name=name, problems=tuple(problems))


def read_trees(entries: Iterable[Any]) -> list[TreeOutcome]:
    """The outcomes of recorded trees."""
    log = msgspec.convert(list(entries), list[Tree])
    return [
        TreeOutcome(
            id=f"game24:{tree.idx}",
            kept=tuple(info.r == 1 for info in tree.infos),
            prompt_tokens=None if used is None else used.prompt_tokens,
            completion_tokens=None if used is None else used.completion_tokens,
        )
        for tree, used in zip(log, _spent([entry.usage_so_far for entry in log]), strict=True)
    ]


def answer_of(text: str) -> str | None:
    """The expression behind the last "Answer:", its "= 24" apart; None where there is none."""
    found = _ANSWER.findall(text)
    expression = found[-1].partition("=")[0].strip() if found else ""
    return expression if expression and expression.lower() != "none" else None


def _spent(running: Sequence[Usage | None]) -> Iterator[Usage | None]:
    """Each problem's own tokens from the running totals, which start again from 0 where the logging process
    was started again."""
    before = Usage(0, 0)
    for usage in running:
        if usage is None:
            yield None
            continue
        if usage.completion_tokens < before.completion_tokens:
            before = Usage(0, 0)
        yield Usage(
            usage.completion_tokens - before.completion_tokens, usage.prompt_tokens - before.prompt_tokens
        )
        before = usage
