"""Turns with one model, each solved by a search; what they have in common is computed once."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol

from ..engine.errors import UsageError
from ..engine.text.tokenizer import Message
from ..strategies.base import Strategy
from ..verifiers.problem import Problem
from .budget import Budget
from .kept import KeptPrefix
from .preparing import DEFAULT_STRATEGY
from .solution import Solution
from .stream import SolveStream, open_stream


class Solve(Protocol):
    """`Reasoner.solve`, in the conversation's namespace."""

    async def __call__(
        self, problem: Problem, strategy: Strategy | str, budget: Budget | None, **options: Any
    ) -> Solution: ...


class Conversation:
    """A conversation that goes on from turn to turn. Made by `Reasoner.conversation`.

    `messages` are its turns so far, without the system message: what the user asked, and the conclusions of
    the solutions. A turn that came to no text is not among them. `busy` while a turn is being solved.
    """

    def __init__(
        self,
        solve: Solve,
        kept: KeptPrefix,
        prefix: Callable[[Problem], tuple[int, ...]],
        *,
        system: str | None,
        messages: Sequence[Message],
    ) -> None:
        """`prefix` gives the token ids that the prompt of a problem begins with, whatever its text."""
        self.system = system
        self.messages = tuple(messages)
        self._solve = solve
        self._kept = kept
        self._prefix = prefix
        self.busy = False
        self._closed = False

    @property
    def kept_positions(self) -> int | None:
        """Positions whose KV is kept for the next turn; None where the engine keeps nothing on demand."""
        return self._kept.positions

    async def ask(
        self,
        text: str,
        strategy: Strategy | str = DEFAULT_STRATEGY,
        budget: Budget | None = None,
        **options: Any,
    ) -> Solution:
        """Solve the next turn; options as of `Reasoner.solve`, without system, namespace and tenant.

        The next turn computes what is new in its prompt only, if it comes within the time to live. A turn
        that raises, or is cancelled, leaves the conversation as it was. One turn at a time (`UsageError`).
        """
        if self._closed:
            raise UsageError("the conversation was closed: open another one")
        if self.busy:
            raise UsageError("a turn of this conversation is being solved: await it first")
        self.busy = True
        try:
            number = sum(message.role == "user" for message in self.messages)
            problem = Problem(
                text=text, id=f"turn {number}: {text}", system=self.system, messages=self.messages
            )
            solution = await self._solve(problem, strategy, budget, **options)
            if solution.conclusion:
                await self._continue(text, solution.conclusion)
            return solution
        finally:
            self.busy = False

    def stream(
        self,
        text: str,
        strategy: Strategy | str = DEFAULT_STRATEGY,
        budget: Budget | None = None,
        **options: Any,
    ) -> AbstractAsyncContextManager[SolveStream]:
        """`ask` as `Reasoner.stream` does it."""
        return open_stream(partial(self.ask, text, strategy, budget), **options)

    def close(self) -> None:
        """Give the kept KV back; nothing can be asked any more. Idempotent."""
        self._closed = True
        self._kept.let_go()

    async def _continue(self, text: str, conclusion: str) -> None:
        messages = (*self.messages, Message("user", text), Message("assistant", conclusion))
        if self._kept.positions is not None and not self._closed:
            await self._kept.keep(self._prefix(Problem(text="", system=self.system, messages=messages)))
        self.messages = messages


@asynccontextmanager
async def closing(conversation: Conversation) -> AsyncIterator[Conversation]:
    """The conversation, closed however the block is left."""
    try:
        yield conversation
    finally:
        conversation.close()
