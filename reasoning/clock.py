"""Who goes next in one search: by logical time where a run must be reproducible, by the wall clock elsewhere.

Logical time makes a search a discrete event simulation. Every running extension has a time: that at which
it began plus the tokens committed since. No token beyond time t is granted before all events up to t (an
extension that ended, a score) were delivered, in the order of (time, branch path), and what they woke has
come to rest. So which branch gets the last token, which candidate is offered first and what a prune finds
depend on the seed alone, not on batch, chunk or machine.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple, Protocol

import anyio

Path = tuple[int, ...]
"""Child indices from a root; the first is the root's own."""

ASIDE = -1
"""First index of the roots on which verifiers ask a model: behind it the path of the branch that is judged,
and a count. Such paths follow from the branch alone, whoever asks first."""


class TicketKind(enum.Enum):
    EXTEND = enum.auto()
    SCORE = enum.auto()


class Ticket:
    """One request of one branch, from its start until its result is delivered.

    `committed_time` is the logical time up to which its tokens are committed; `ended` is set when the
    engine is done.
    """

    __slots__ = ("delivered", "ended", "granted", "in_flight", "kind", "path", "start", "suspended")

    def __init__(self, path: Path, kind: TicketKind, start: int) -> None:
        self.path = path
        self.kind = kind
        self.start = start
        self.granted = 0
        self.in_flight = 0
        self.ended = False
        self.suspended = False
        self.delivered = anyio.Event()

    @property
    def committed_time(self) -> int:
        return self.start + self.granted - self.in_flight

    @property
    def key(self) -> tuple[int, Path]:
        return self.committed_time, self.path


class Clock(Protocol):
    """The order of one search. `may_grant`, `granted`, `committed` and `refunded` run on the engine's
    thread under the ledger's lock, the rest on the event loop."""

    reproducible: bool

    def begin(self, path: Path, kind: TicketKind) -> Ticket:
        """A request is about to be handed to the engine."""
        ...

    def may_grant(self, ticket: Ticket, *, scarce: bool) -> bool:
        """Whether the ticket's next work may start now. `scarce`: the budget may not cover one more round
        for all."""
        ...

    def granted(self, ticket: Ticket) -> None:
        """A token was granted and is in flight."""
        ...

    def committed(self, ticket: Ticket) -> bool:
        """The token is committed; true where an event that waited for it may be due now."""
        ...

    def refunded(self, ticket: Ticket) -> None: ...

    async def finish(self, ticket: Ticket) -> None:
        """The engine is done with the request: wait for its turn to be delivered."""
        ...

    def drop(self, ticket: Ticket) -> None:
        """The request was cancelled; nothing will be delivered."""
        ...

    def running(self) -> list[Ticket]:
        """Extensions that are not ended, by path."""
        ...

    def holding(self) -> list[Ticket]:
        """Extensions whose end nobody has seen yet: in logical time an end is not known before its turn."""
        ...

    @property
    def running_count(self) -> int: ...

    def suspend(self, ticket: Ticket) -> None:
        """The ticket gives way until it is resumed; nobody waits for it meanwhile."""
        ...

    def resume(self, ticket: Ticket) -> None:
        """The ticket goes on from now."""
        ...


class WallClock:
    """First come, first served."""

    reproducible = False

    def __init__(self) -> None:
        self._running: dict[Path, Ticket] = {}

    def begin(self, path: Path, kind: TicketKind) -> Ticket:
        ticket = Ticket(path, kind, 0)
        if kind is TicketKind.EXTEND:
            self._running[path] = ticket
        return ticket

    def may_grant(self, ticket: Ticket, *, scarce: bool) -> bool:
        return True

    def granted(self, ticket: Ticket) -> None:
        ticket.granted += 1
        ticket.in_flight += 1

    def committed(self, ticket: Ticket) -> bool:
        ticket.in_flight -= 1
        return False

    def refunded(self, ticket: Ticket) -> None:
        ticket.granted -= 1
        ticket.in_flight -= 1

    async def finish(self, ticket: Ticket) -> None:
        self.drop(ticket)

    def drop(self, ticket: Ticket) -> None:
        if self._running.get(ticket.path) is ticket:
            del self._running[ticket.path]

    def running(self) -> list[Ticket]:
        return [self._running[path] for path in sorted(self._running)]

    def holding(self) -> list[Ticket]:
        return self.running()

    @property
    def running_count(self) -> int:
        return len(self._running)

    def suspend(self, ticket: Ticket) -> None:
        ticket.suspended = True

    def resume(self, ticket: Ticket) -> None:
        ticket.suspended = False


class _Round(NamedTuple):
    """What bounds the next grants: whether scores are out, and the earliest time of an ended and of a running
    extension."""

    scoring: bool
    first_ended: int
    first_running: int


class LogicalClock:
    """Logical time; see the module's text. `settled` says that nothing woken by the last event is still on
    its way."""

    reproducible = True

    def __init__(self) -> None:
        self.now = 0
        self.settled = False
        self.moved: Callable[[], None] = lambda: None
        """Called when there may be something to deliver or to start."""
        self._tickets: dict[Path, Ticket] = {}
        self._round: _Round | None = None
        self._unserved: list[Ticket] | None = None
        self._running = 0
        self._ended = 0

    @property
    def running_count(self) -> int:
        return self._running

    def suspend(self, ticket: Ticket) -> None:
        ticket.suspended = True
        self._forget()

    def resume(self, ticket: Ticket) -> None:
        ticket.suspended = False
        ticket.start += max(0, self.now - ticket.committed_time)
        self._forget()

    def begin(self, path: Path, kind: TicketKind) -> Ticket:
        ticket = Ticket(path, kind, self.now)
        self._running += kind is TicketKind.EXTEND
        self._tickets[path] = ticket
        self._move()
        return ticket

    def may_grant(self, ticket: Ticket, *, scarce: bool) -> bool:
        if not self.settled or ticket.suspended:
            return False
        if ticket.kind is TicketKind.SCORE:
            return True
        round_ = self._round or self._look()
        time = ticket.committed_time
        if round_.scoring or round_.first_ended <= time or round_.first_running < time:
            return False
        return not scarce or not self._others_first(ticket)

    def _others_first(self, ticket: Ticket) -> bool:
        """Whether another branch must be asked before this one gets what may be the last token."""
        if self._unserved is None:
            waiting = (t for t in self._tickets.values() if not t.suspended and not t.ended)
            self._unserved = sorted(waiting, key=lambda t: t.key, reverse=True)
        while self._unserved and self._unserved[-1].in_flight:
            self._unserved.pop()
        return bool(self._unserved) and self._unserved[-1].key < ticket.key

    def _look(self) -> _Round:
        """Sum up the tickets; holds until one of them changes, so that a plan looks at all of them once."""
        extensions = [t for t in self._tickets.values() if t.kind is TicketKind.EXTEND and not t.suspended]
        never = 1 << 62
        self._round = _Round(
            scoring=any(t.kind is TicketKind.SCORE for t in self._tickets.values()),
            first_ended=min((t.committed_time for t in extensions if t.ended), default=never),
            first_running=min((t.committed_time for t in extensions if not t.ended), default=never),
        )
        return self._round

    def _forget(self) -> None:
        """A ticket changed other than by a grant."""
        self._round = self._unserved = None

    def granted(self, ticket: Ticket) -> None:
        ticket.granted += 1
        ticket.in_flight += 1

    def committed(self, ticket: Ticket) -> bool:
        ticket.in_flight -= 1
        self._forget()
        return self._ended > 0

    def refunded(self, ticket: Ticket) -> None:
        ticket.granted -= 1
        ticket.in_flight -= 1
        self._forget()

    async def finish(self, ticket: Ticket) -> None:
        self._end(ticket)
        self._ended += 1
        self._move()
        await ticket.delivered.wait()

    def drop(self, ticket: Ticket) -> None:
        if self._tickets.get(ticket.path) is ticket:
            del self._tickets[ticket.path]
            if ticket.ended:
                self._ended -= 1
            self._end(ticket)
            self._move()

    def _end(self, ticket: Ticket) -> None:
        ticket.suspended = False
        if not ticket.ended:
            ticket.ended = True
            self._running -= ticket.kind is TicketKind.EXTEND

    def suspended(self) -> list[Ticket]:
        """Running extensions that gave way, by path."""
        found = [t for t in self._tickets.values() if t.suspended]
        return sorted(found, key=lambda t: t.path)

    def running(self) -> list[Ticket]:
        tickets = (self._tickets[path] for path in sorted(self._tickets))
        return [t for t in tickets if t.kind is TicketKind.EXTEND and not t.ended]

    def holding(self) -> list[Ticket]:
        return [t for t in self._tickets.values() if t.kind is TicketKind.EXTEND]

    def deliver_next(self) -> bool:
        """Deliver the next event whose turn has come; false where there is none."""
        ticket = self._next_extension() or self._next_score()
        if ticket is None:
            return False
        del self._tickets[ticket.path]
        self._ended -= 1
        self._forget()
        self.now = max(self.now, ticket.committed_time)
        ticket.delivered.set()
        return True

    def _move(self) -> None:
        self.settled = False
        self._forget()
        self.moved()

    def _next_extension(self) -> Ticket | None:
        """The earliest ended extension, once no running one can still end before it."""
        extensions = [t for t in self._tickets.values() if t.kind is TicketKind.EXTEND and not t.suspended]
        ended = [t for t in extensions if t.ended]
        if not ended:
            return None
        first = min(ended, key=lambda t: t.key)
        behind = any(not t.ended and t.committed_time < first.committed_time for t in extensions)
        return None if behind else first

    def _next_score(self) -> Ticket | None:
        """Scores asked for at one time are computed as one round and delivered by path once all are there."""
        scores = [t for t in self._tickets.values() if t.kind is TicketKind.SCORE]
        if not scores or not all(t.ended for t in scores):
            return None
        return min(scores, key=lambda t: t.path)
