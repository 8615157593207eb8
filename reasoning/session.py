"""A search by the caller's own code: branches under one budget, without a strategy."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ..verifiers.problem import Problem
from .branch import SearchBranch
from .budget import Budget
from .preparing import RunMaker, RunOptions


@asynccontextmanager
async def open_session(
    maker: RunMaker, problem: str | Problem | Sequence[int], budget: Budget, options: RunOptions
) -> AsyncIterator[SearchBranch]:
    """The root of a new run. However the block is left, all branches that grew from it are pruned then."""
    run, prompt = maker.make(problem, budget, **options)
    try:
        yield SearchBranch.open(run, run.next_root(), prompt, run.problem.text, run.policy)
    finally:
        run.close()
