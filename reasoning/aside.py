"""Blocking work aside from the event loop, which nobody waits for once it is cancelled."""

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """The result of `work`, called in a thread of its own; raises what it raised.

    Cancelling leaves the thread to itself: it does not hold up the end of the process either, as a worker
    thread of the event loop would.
    """
    ended = anyio.Event()
    token = anyio.lowlevel.current_token()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            anyio.from_thread.run_sync(ended.set, token=token)

    threading.Thread(target=run, name="aside", daemon=True).start()
    await ended.wait()
    if failures:
        raise failures[0]
    return results[0]
