"""Bringing a branch to its answer, also where a limit cut its thinking."""

from collections.abc import AsyncIterator, Iterable

from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, Until
from .base import Branch, Search, Step

_CUT = frozenset({Stop.BUDGET, Stop.LENGTH})


async def reach_answer(branch: Branch, sampling: SamplingParams | None = None) -> bool:
    """Extend until the answer stands; False where budget or length cut it before that, and it should be
    concluded.

    `sampling` None: the model's own settings.
    """
    step = await branch.extend(Until.ANSWER, sampling=sampling)
    return branch.complete or step.stop not in _CUT


def goes_on(part: Step, tokens: int) -> bool:
    """Whether a trace that is written in parts of `extend(Until.ANSWER, max_tokens=tokens)` has more to come
    after this one, where it is not complete."""
    return part.stop is Stop.THINK_END or (part.stop is Stop.LENGTH and part.generated == tokens)


async def conclude_all(search: Search, cut: Iterable[Branch]) -> None:
    """Make cut branches answer, evaluate and offer them."""
    async for branch in concluded(search, cut):
        await branch.evaluate()
        search.offer(branch)


async def concluded(search: Search, cut: Iterable[Branch]) -> AsyncIterator[Branch]:
    """Make cut branches answer, and yield each.

    One after the other, the longest thinking first: side by side they would share one reserve and none might
    come to its end. Once the budget is spent, those without a token are passed over.
    """
    for branch in sorted(cut, key=lambda branch: -len(branch.tokens)):
        if not branch.tokens and search.budget.spent:
            continue
        await branch.conclude()
        yield branch
