"""A verifier's metered way to the engine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..engine.sampling.params import SamplingParams
from . import asking
from .reading import read_logprobs, read_scores
from .run import Run

if TYPE_CHECKING:
    from .branch import SearchBranch


class BranchLease:
    """Implements `verifiers.base.Lease` on a branch: its mirror on the scoring model follows its tokens."""

    def __init__(self, branch: "SearchBranch") -> None:
        self._branch = branch

    async def rewards(self, model: str, positions: Sequence[int]) -> tuple[float, ...] | None:
        """`positions` count as in `Branch.tokens`."""
        branch = self._branch
        rows = branch.mirror(model).rows(branch.trail.tokens, positions)
        with at_the_engine(branch.run):
            scores = await read_scores(branch, model, reward_at=rows)
        return None if scores.refused else scores.rewards

    async def logprobs(self, model: str, start: int) -> tuple[float, ...] | None:
        """`start` counts as in `Branch.tokens`."""
        with at_the_engine(self._branch.run):
            return await read_logprobs(self._branch, model, start)

    async def choose(
        self,
        prompt: str,
        options: Sequence[str],
        *,
        model: str = "policy",
        think: bool | None = False,
        normalise: bool = True,
    ) -> tuple[float, ...] | None:
        """On a root of its own, with one fork per option."""
        with at_the_engine(self._branch.run):
            return await asking.choose(
                self._branch, prompt, options, model=model, think=think, normalise=normalise
            )

    async def write(
        self,
        prompt: str,
        *,
        model: str = "policy",
        max_tokens: int,
        sampling: SamplingParams | None = None,
        think: bool | None = False,
    ) -> str | None:
        """On a root of its own."""
        with at_the_engine(self._branch.run):
            return await asking.write(
                self._branch, prompt, model=model, max_tokens=max_tokens, sampling=sampling, think=think
            )


@contextmanager
def at_the_engine(run: Run) -> Iterator[None]:
    """A verifier, which is work outside of the engine, waits for the engine inside the block."""
    run.outside(-1)
    try:
        yield
    finally:
        run.outside(1)
