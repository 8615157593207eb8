"""A tournament: candidates are compared two at a time, and the winners with each other, to the last one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

T = TypeVar("T")

Prefer = Callable[[T, T], Awaitable[float | None]]
"""The probability that the first is the better one, None where that cannot be told. Must not raise."""


async def knockout(candidates: Sequence[T], prefer: Prefer[T]) -> list[int]:
    """How many rounds each candidate survived; the winner alone survived all.

    Neighbours meet, an odd one out goes on unmet; a tie, or what cannot be told, goes to the earlier one. The
    matches of a round run side by side. N candidates take N - 1 matches.
    """
    rounds = [0] * len(candidates)
    alive = list(range(len(candidates)))
    while len(alive) > 1:
        alive = await _round(candidates, alive, prefer)
        for index in alive:
            rounds[index] += 1
    return rounds


async def _round(candidates: Sequence[T], alive: Sequence[int], prefer: Prefer[T]) -> list[int]:
    pairs = [tuple(alive[start : start + 2]) for start in range(0, len(alive), 2)]
    winners = [pair[0] for pair in pairs]

    async def match(place: int, first: int, second: int) -> None:
        probability = await prefer(candidates[first], candidates[second])
        if probability is not None and probability < 0.5:
            winners[place] = second

    async with anyio.create_task_group() as group:
        for place, pair in enumerate(pairs):
            if len(pair) == 2:
                group.start_soon(match, place, *pair)
    return winners
