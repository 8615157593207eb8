"""Reader of the outputs of Qwen2.5-Math's evaluation: n solutions per problem, graded, with rewards."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from .recording import Completion, RecordedProblem, Recording


class Entry(msgspec.Struct, frozen=True):
    """One problem: `code` the solutions, `pred` their answers, `score` whether they are right, `pred_score`
    the reward model's logits, one per output of it."""

    idx: int
    question: str
    gt: str
    code: list[str]
    pred: list[str]
    score: list[bool]
    pred_score: list[list[float] | float] | None = None
    level: str | None = None


def read_outputs(entries: Iterable[Any], name: str) -> Recording:
    """The outputs as a recording. Their tokens were not recorded; rewards become scores by the sigmoid, which
    keeps their order."""
    log = msgspec.convert(list(entries), list[Entry])
    return Recording(name=name, problems=tuple(map(_problem, log)))


def _problem(entry: Entry) -> RecordedProblem:
    rewards = entry.pred_score or [None] * len(entry.code)
    return RecordedProblem(
        id=f"math:{entry.idx}",
        problem=entry.question,
        level=entry.level,
        gold=entry.gt,
        completions=tuple(
            Completion(text=text, answer=answer or None, correct=right, score=_sigmoid(reward))
            for text, answer, right, reward in zip(entry.code, entry.pred, entry.score, rewards, strict=True)
        ),
    )


def _sigmoid(reward: list[float] | float | None) -> float | None:
    if reward is None:
        return None
    logit = reward[-1] if isinstance(reward, list) else reward
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))
