"""When the tasks of a search have come to rest: the moment at which the next event may be delivered."""

import math
from typing import Protocol

import anyio
import anyio.lowlevel

from .clock import LogicalClock

QUIET_TURNS = 8
"""Turns of the event loop without a call into the orchestrator after which a search counts as settled. A
woken task needs one turn to run, one that ends a task group up to four more to wake the task that waits for
it."""

POLL_S = 0.02
"""Seconds between two looks at what a step made due, where the engine makes no delivery for it."""


class SettleHook(Protocol):
    """What a search does at rest."""

    def advance(self) -> bool:
        """Deliver one event; false where there is none."""
        ...

    def on_settled(self) -> None:
        """No event is left: the engine may go on."""
        ...


class Rest:
    """Whether one search has come to rest. `touch` says that it moves; while `external` work is out it
    cannot settle."""

    def __init__(self, clock: LogicalClock, settler: "Settler") -> None:
        self.clock = clock
        self.quiet_turns = 0
        self.external = 0
        self._settler = settler

    def touch(self) -> None:
        """A task of the search called into the orchestrator, or was woken by it."""
        self.quiet_turns = 0
        self.clock.settled = False
        self._settler.wake(self)

    def wake_from_thread(self) -> None:
        """The engine's thread made an event due; the settler learns of it at the next delivery."""
        self._settler.note_due(self)


class Settler:
    """Drives the logical clocks of all searches on one engine: turn by turn until each is settled.

    `run` is a task of the reasoner. `settle` is given to the engine, which awaits it after each delivery
    before it plans again.
    """

    def __init__(self) -> None:
        self._moving: dict[int, tuple[Rest, SettleHook]] = {}
        self._hooks: dict[int, SettleHook] = {}
        self._due: list[Rest] = []
        self._awake = anyio.Event()

    def register(self, rest: Rest, hook: SettleHook) -> None:
        """`hook.advance()` delivers the next event, `hook.on_settled()` opens the grants."""
        self._hooks[id(rest)] = hook

    def forget(self, rest: Rest) -> None:
        self._hooks.pop(id(rest), None)
        self._moving.pop(id(rest), None)

    def wake(self, rest: Rest) -> None:
        hook = self._hooks.get(id(rest))
        if hook is not None:
            self._moving[id(rest)] = (rest, hook)
            self._awake.set()

    def note_due(self, rest: Rest) -> None:
        """Called on the engine's thread: an event of this search may be due."""
        self._due.append(rest)

    def due(self) -> bool:
        """Asked on the engine's thread after each step: whether `settle` has something to do."""
        return bool(self._due)

    async def run(self) -> None:
        """Turn after turn while a search moves; asleep otherwise."""
        while True:
            if not any(rest.external == 0 for rest, _ in self._moving.values()):
                await self._sleep()
            await anyio.lowlevel.checkpoint()
            self._turn()

    async def settle(self) -> None:
        """Return once no search moves, those that wait for work outside apart."""
        self._take_due()
        for _ in range(2):
            await anyio.lowlevel.checkpoint()
        while any(rest.external == 0 for rest, _ in self._moving.values()):
            await anyio.lowlevel.checkpoint()

    async def _sleep(self) -> None:
        """Until a search moves. An engine that does not ask `due` is looked after from time to time."""
        self._awake = anyio.Event()
        with anyio.move_on_after(POLL_S if self._hooks else math.inf):
            await self._awake.wait()
        self._take_due()

    def _take_due(self) -> None:
        while self._due:
            self._due.pop().touch()

    def _turn(self) -> None:
        for key, (rest, hook) in list(self._moving.items()):
            if rest.external:
                continue
            rest.quiet_turns += 1
            if rest.quiet_turns < QUIET_TURNS:
                continue
            if hook.advance():
                rest.quiet_turns = 0
                continue
            del self._moving[key]
            rest.clock.settled = True
            hook.on_settled()
