"""Tokens that are forced onto a branch: checked, paid for, and computed when the next request needs them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio.lowlevel

from ..engine.errors import UsageError
from ..engine.text.stop import Stop
from ..strategies.base import Step
from .caps import caps_in_force

if TYPE_CHECKING:
    from .branch import SearchBranch


async def append_to(branch: "SearchBranch", content: str | Sequence[int]) -> Step:
    """Append as `Branch.append` says."""
    return await force(branch, content, on_reserve=branch.draws_on_reserve)


async def end_thinking(branch: "SearchBranch") -> Step:
    """Force the end of thinking, paid from the reserve."""
    marker = branch.tokenizer.encode(branch.profile.think_end or "")
    if branch.room < len(marker) + 1:
        return Step(tokens=(), text="", stop=Stop.CONTEXT)
    forced = await force(branch, marker, on_reserve=not branch.aside)
    if forced.stop is not Stop.BUDGET:
        branch.phases.answer_start = len(branch.tokens)
    return forced


async def force(
    branch: "SearchBranch", content: str | Sequence[int], *, on_reserve: bool, ends: Stop = Stop.STOP
) -> Step:
    """Put `content` behind the branch, as a step that ends with `ends`; paid from the reserve too where
    `on_reserve`. Stop "budget" where it is not covered. Raises `UsageError` for what cannot stand there."""
    run, phase = branch.run, branch.told.phase
    run.touch()
    await anyio.lowlevel.checkpoint()
    branch.check_live("append")
    tokens = tuple(branch.tokenizer.encode(content) if isinstance(content, str) else content)
    _check_content(branch, tokens)
    if not tokens:
        return Step(tokens=(), text="", stop=Stop.STOP)
    with run.ledger.lock:
        if not run.take_kv(branch, len(tokens)):
            return Step(tokens=(), text="", stop=Stop.BUDGET)
        if not run.ledger.charge(len(tokens), 0, caps_in_force(), answering=on_reserve):
            return Step(tokens=(), text="", stop=Stop.BUDGET)
        branch.trail.begin(branch, "forced")
        step = branch.trail.end(tokens, ends)
    branch.closed, branch.calls = False, ()
    branch.sequence(branch.model)
    branch.phases.read_forced(branch.trail.tokens, len(tokens))
    branch.told.settle(phase)
    branch.emit_steps([step])
    return step


def _check_content(branch: "SearchBranch", tokens: tuple[int, ...]) -> None:
    if len(tokens) > branch.room:
        raise UsageError(
            f"append of {len(tokens)} tokens to branch {branch.id}: its context has room for {branch.room}"
        )
    grammar, size = branch.run.grammar, branch.run.models[branch.model].vocab_size
    for token in tokens:
        if not 0 <= token < size:
            raise UsageError(
                f"append of token {token} to branch {branch.id}: the ids of {branch.model} end at {size - 1}"
            )
    if grammar is not None and not grammar.takes(branch, tokens):
        form = "schema" if branch.run.schema is not None else "tool_choice"
        raise UsageError(
            f"append of {len(tokens)} tokens to branch {branch.id}: the answer would not fit its {form}"
        )
