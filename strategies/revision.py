"""Attempts that read earlier attempts: each is a new root with a prompt of its own."""

from collections.abc import Callable, Sequence
from string import Template

from ..verifiers.problem import Attempt
from ..verifiers.revision import revision_prompt
from ..verifiers.vote import Select
from .base import Branch, Search
from .conclusion import reach_answer

_BY_SCORE = (Select.MAX_SCORE, Select.WEIGHTED_VOTE)


def attempt_of(branch: Branch) -> Attempt:
    """A branch as a later prompt shows it."""
    in_phase = branch.thinking or branch.thinking_length > 0
    thinking = branch.text.partition(branch.profile.think_end or "\0")[0] if in_phase else ""
    return Attempt(thinking=thinking, conclusion=branch.conclusion, answer=branch.answer)


async def open_revision(search: Search, earlier: Sequence[Branch], template: Template) -> Branch | None:
    """A new root whose prompt shows the earlier attempts, the first ones left out where the context has no
    room for one more as long as the longest; None where not even the last one leaves room."""
    needed = max(len(branch.tokens) for branch in earlier)
    for first in range(len(earlier)):
        shown = earlier[first:]
        prompt = revision_prompt(search.problem, [attempt_of(branch) for branch in shown], template)
        root = await search.open(prompt)
        if root.room >= needed:
            search.note("revision", branch=root.id, of=[branch.id for branch in shown])
            return root
        root.prune(f"no room behind a prompt of {len(shown)} attempts")
    search.note("no room in the context for a prompt with an earlier attempt")
    return None


async def answer_all(search: Search, branches: Sequence[Branch], take: Callable[[Branch], None]) -> None:
    """Bring branches to their answers side by side, and `take` each once it is evaluated.

    Those that a limit cut answer from the reserve, one after the other, the longest first, once the rest is
    done; a branch that failed is left out.
    """
    cut: list[Branch] = []

    async def answer(branch: Branch) -> None:
        if not await reach_answer(branch):
            cut.append(branch)

    async with search.each(branches, answer) as done:
        async for branch in done:
            if branch not in cut:
                await branch.evaluate()
                take(branch)
    for branch in sorted(cut, key=lambda branch: -len(branch.tokens)):
        if branch.tokens or not search.budget.spent:
            await branch.conclude()
            await branch.evaluate()
            take(branch)


def tell_fallback(search: Search, select: Select) -> None:
    """Say so where a selection by score has no scores to go by."""
    if search.verifier is None and select in _BY_SCORE:
        search.note(f"no verifier: {select} falls back to majority")
