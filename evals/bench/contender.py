"""What a benchmark compares: the engine and the peers, run in turn on the same work."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import anyio

Figures = Mapping[str, float]
"""Named figures of one run; a name carries its unit."""

Run = Callable[[int], Awaitable[Figures]]
"""Does the work once. Its argument numbers the runs, so that each can have prompts of its own."""

PAUSE_S = 0.05
"""Seconds between two contenders: threads that spin after their last work have gone to sleep by then."""


class Contender(NamedTuple):
    """One program that does the work."""

    name: str
    run: Run


async def interleave(contenders: Sequence[Contender], repeats: int) -> dict[str, list[Figures]]:
    """The figures of `repeats` runs of each. They take turns, so that a machine which slows down meanwhile
    slows all of them; a first round warms up and does not count."""
    runs: dict[str, list[Figures]] = {contender.name: [] for contender in contenders}
    for number in range(repeats + 1):
        for contender in contenders:
            await anyio.sleep(PAUSE_S)
            figures = await contender.run(number)
            if number > 0:
                runs[contender.name].append(figures)
    return runs


def medians(runs: Sequence[Figures]) -> dict[str, float]:
    """The median of each figure over the runs."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}
