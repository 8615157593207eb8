"""A solution's text as other harnesses want it: what was thought, and what was concluded."""

import msgspec

from ...engine.protocol import ModelInfo
from ...reasoning.solution import Solution


class Parts(msgspec.Struct, frozen=True):
    """The text before the end of thinking (empty for models that do not think) and after it, markers and end
    tokens apart."""

    thinking: str
    conclusion: str


def parts_of(solution: Solution, policy: ModelInfo) -> Parts:
    """The parts of the returned text of a model. A text that was cut while thinking concludes nothing."""
    text = solution.text
    for end in policy.profile.stop_ids:
        text = text.removesuffix(policy.tokenizer.decode([end]))
    marker = policy.profile.think_end
    if marker is None:
        return Parts("", text)
    thinking, found, conclusion = text.partition(marker)
    return Parts(thinking, conclusion) if found else Parts(text, "")
