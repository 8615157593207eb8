"""Where steps end in generated tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.text.stop import Stop, StopChecker, StopRule, Until
from ..strategies.base import Step

if TYPE_CHECKING:
    from .branch import SearchBranch


def is_whole(branch: "SearchBranch", step: Step) -> bool:
    """Whether the step ends at its mark, also where a limit cut it right behind a mark in letters."""
    mark = branch.run.step_mark or branch.profile.step_mark
    cut_there = step.stop in (Stop.LENGTH, Stop.BUDGET) and branch.run.tokens_per_step is None
    return step.stop is Stop.MARK or (cut_there and mark is not None and step.text.endswith(mark))


def step_ends(branch: "SearchBranch", tokens: Sequence[int]) -> list[int]:
    """Offsets behind each step in `tokens`, which follow what stands on the branch; the last is
    `len(tokens)`.

    A step ends at the profile's mark, at the end of thinking, at the end of the sequence, or where the
    extension ended.
    """
    run = branch.run
    info = run.models[branch.model]
    rule = StopRule(
        until=Until.STEP,
        eos_ids=info.profile.stop_ids,
        mark=run.step_mark,
        tokens_per_step=run.tokens_per_step,
    )
    context = [*branch.prompt, *branch.tokens]
    ends: list[int] = []
    checker = StopChecker(rule, info.profile, info.tokenizer, context)
    for offset, token in enumerate(tokens, start=1):
        stop = checker.push(token)
        if stop is None or offset == len(tokens):
            continue
        ends.append(offset)
        if stop in (Stop.MARK, Stop.THINK_END, Stop.LENGTH):
            checker = StopChecker(rule, info.profile, info.tokenizer, [*context, *tokens[:offset]])
    if tokens:
        ends.append(len(tokens))
    return ends


def unfinished_from(branch: "SearchBranch") -> int:
    """Where the branch's last unfinished step begins, which may have been written in parts, each cut by its
    length; the branch's length where it ends with a whole one."""
    steps, length = branch.steps, len(branch.tokens)
    if not steps or is_whole(branch, steps[-1]):
        return length
    first = len(steps) - 1
    while (
        first
        and steps[first - 1].stop in (Stop.LENGTH, Stop.BUDGET)
        and not is_whole(branch, steps[first - 1])
    ):
        first -= 1
    return length - sum(len(step.tokens) for step in steps[first:])
