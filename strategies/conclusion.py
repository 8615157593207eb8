"""Bringing a branch to its answer, also where a limit cut its thinking."""

from collections.abc import Iterable

from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from .base import Branch, Search

_CUT = frozenset({Stop.BUDGET, Stop.LENGTH})


async def reach_answer(branch: Branch, sampling: SamplingParams | None = None) -> bool:
    """Extend until the answer stands; False where budget or length cut it before that, and it should be
    concluded.

    `sampling` None: the model's own settings.
    """
    step = await branch.extend(Until.ANSWER, sampling=sampling)
    return branch.complete or step.stop not in _CUT


async def conclude_all(search: Search, cut: Iterable[Branch]) -> None:
    """Make cut branches answer and offer them.

    One after the other, the longest thinking first: side by side they would share one reserve and none might
    come to its end. Once the budget is spent, those without a token are passed over.
    """
    for branch in sorted(cut, key=lambda branch: -len(branch.tokens)):
        if not branch.tokens and search.budget.spent:
            continue
        await branch.conclude()
        await branch.evaluate()
        search.offer(branch)
