"""When the event loop's side has come to rest after a delivery, so that the engine may plan again."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

Settle = Callable[[], Awaitable[None]]
"""Returns when every task that a delivery woke has parked again."""

Due = Callable[[], bool]
"""Asked on the engine's thread after each step: whether `settle` has something to do though nothing ended."""

_TURNS = 8


async def settle_turns(limit_s: float) -> None:
    """A few turns of the event loop, at most `limit_s` seconds: enough for a woken task to run and post what
    it wants next.
    """
    deadline = anyio.current_time() + limit_s
    for _ in range(_TURNS):
        await anyio.lowlevel.checkpoint()
        if anyio.current_time() >= deadline:
            return


def never_due() -> bool:
    return False
