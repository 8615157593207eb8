"""Ctrl-C: the first ends the search with the best so far, the second ends the process."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskStatus


class Interrupt:
    """`event` is set by the first signal; `status` is then the exit status that says which one it was."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.status = 0

    def receive(self, signum: int) -> None:
        self.status = 128 + signum
        self.event.set()


@asynccontextmanager
async def interruptible(restore: Callable[[], object] = lambda: None) -> AsyncIterator[Interrupt]:
    """Watch for SIGINT and SIGTERM in the block. `restore` puts the terminal right before a sudden end."""
    interrupt = Interrupt()
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        await group.start(_watch, interrupt, restore)
        try:
            yield interrupt
        except Exception as error:  # raised below: a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _watch(
    interrupt: Interrupt,
    restore: Callable[[], object],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for signum in signals:
            if interrupt.event.is_set():
                restore()
                # The engine's thread may be in a long step: waiting for it is what is not wanted now.
                os._exit(128 + signum)
            interrupt.receive(signum)
