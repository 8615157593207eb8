"""The tokens of a candidate, and what is known of each."""

from typing import TYPE_CHECKING

import msgspec

from ..engine.sampling.detail import Alternatives

if TYPE_CHECKING:
    from .branch import SearchBranch


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens behind the prompt of one candidate, end ids included.

    `conclusion_start` is the offset of the answer phase, the number of tokens where there is none.
    `logprobs`: natural logarithms under the raw distribution, one per token, None for a forced one. `stop` is
    why the last step ended. `alternatives`: one per token where the run's sampling asks for `top_logprobs`,
    else None each.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    conclusion_start: int = 0
    stop: str = ""
    alternatives: tuple[Alternatives | None, ...] = ()


NOTHING = Written()


def written_on(branch: "SearchBranch") -> Written:
    """What stands on the branch now."""
    tokens = tuple(branch.tokens)
    logprobs: list[float | None] = []
    alternatives: list[Alternatives | None] = []
    for step in branch.steps:
        unknown = [None] * len(step.tokens)
        logprobs.extend(step.logprobs or unknown)
        alternatives.extend(step.alternatives or unknown)
    return Written(
        tokens=tokens,
        logprobs=tuple(logprobs),
        conclusion_start=(branch.phases.answer_start or 0) if branch.answering else len(tokens),
        stop=str(branch.steps[-1].stop) if branch.steps else "",
        alternatives=tuple(alternatives),
    )
