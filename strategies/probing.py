"""Probes of a chain that thinks: the answer it would give now, and whether it is sure of it.

After Dynasor (Fu et al. 2024, arXiv 2412.20993), whose code also stops on answers that differ or are empty,
and takes the "no" in "denominator" for doubt; here answers are compared by value, and words are words.
"""

import enum
import re
from collections.abc import Sequence

import msgspec

from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from ..verifiers.answer import canonical, extract_answer
from ..verifiers.problem import Problem
from .base import Branch, Search

PROBE_TOKENS = 20
PROBE_SAMPLING = SamplingParams(temperature=0.6, top_p=0.95)
HESITATION = ("wait", "hold", "but", "okay", "no", "hmm")

_DOUBT = re.compile(rf"\b(?:{'|'.join(HESITATION)})\b", re.IGNORECASE)
_BOX = "\\boxed{"


class Effort(enum.StrEnum):
    """The paper's levels, from the most patient to the least."""

    MILD = "mild"
    LOW = "low"
    MID = "mid"
    HIGH = "high"
    CRAZY = "crazy"


LEVELS = {
    Effort.MILD: (8, 64),
    Effort.LOW: (5, 64),
    Effort.MID: (3, 64),
    Effort.HIGH: (2, 64),
    Effort.CRAZY: (2, 32),
}
"""(probes that must agree, tokens between probes)"""


class Probed(msgspec.Struct, frozen=True):
    """What a probe said: its text, and the canonical key of the answer, None where it gave none."""

    text: str
    key: str | None


def hesitates(text: str) -> bool:
    """Whether a word of doubt stands in the text."""
    return _DOUBT.search(text) is not None


def settled(probes: Sequence[Probed], tau: int) -> bool:
    """Whether the last `tau` probes gave one answer, all of them without hesitation."""
    last = probes[-tau:]
    return (
        len(last) == tau
        and last[0].key is not None
        and all(probe.key == last[0].key and not hesitates(probe.text) for probe in last)
    )


async def probe(search: Search, branch: Branch, suffix: str | None) -> Probed | None:
    """Ask a fork of a thinking branch for the answer, in at most `PROBE_TOKENS`, and prune it.

    `suffix` leads to the answer inside of thinking, up to a closing brace; None: the fork ends its thinking
    and answers. None comes back where the budget or the context does not cover a probe: the reserve for the
    answer is never used.
    """
    text = suffix or branch.profile.think_end or ""
    needed = len(text.encode()) + PROBE_TOKENS
    left = search.budget.tokens_left
    if needed > branch.room or (left is not None and needed > left):
        return None
    (fork,) = branch.fork(1)
    async with search.phase("probe", tokens=needed):
        if (await fork.append(text)).stop is Stop.BUDGET:
            fork.prune("probe: not covered")
            return None
        if suffix is None:
            step = await fork.extend(Until.ANSWER, max_tokens=PROBE_TOKENS, sampling=PROBE_SAMPLING)
            answer = fork.answer if fork.complete else None
        else:
            step = await fork.extend(Until.THINK, max_tokens=PROBE_TOKENS, sampling=PROBE_SAMPLING)
            answer = _boxed(search.problem, step.text)
    key = None if answer is None else key_of(search.problem, answer)
    fork.prune(f"probe: {key or 'no answer'}")
    return Probed(step.text, key)


def key_of(problem: Problem, answer: str) -> str | None:
    """The key under which equal answers of the problem vote together."""
    return canonical(answer) if problem.task is None else problem.task.canonical(answer)


def _boxed(problem: Problem, text: str) -> str | None:
    """The answer in a text that begins inside of a box; None where the box is not closed, or empty."""
    closed = _BOX + text
    answer = extract_answer(closed) if problem.task is None else problem.task.extract(closed)
    return answer if answer and "}" in text else None
