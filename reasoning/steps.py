"""Where steps end in generated tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.text.stop import Stop, StopChecker, StopRule, Until

if TYPE_CHECKING:
    from .branch import SearchBranch


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
