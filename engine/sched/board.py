"""Where each request stands. Every change of a request's state is made here."""

from ..errors import EngineClosed
from ..protocol import Extension, Pinned, Scores
from ..text.stop import Stop
from .family import Family
from .observer import Observer
from .queue import RequestQueue
from .request import Delta, ExtendRequest, Outcome, Request, RequestState, ScoreRequest
from .sequence import Sequence

_NOBODY = Observer()


class Board:
    """The waiting and the running requests, and what ended since the last `take`."""

    def __init__(self, family: Family, observer: Observer) -> None:
        self.waiting = RequestQueue()
        self.running = RequestQueue()
        self.speculating = 0
        """Requests that ask for drafts."""
        self._family = family
        self._observer = observer
        self._requests: dict[int, Request] = {}
        self._outcomes: list[Outcome] = []
        self._deltas: list[Delta] = []
        self._ended: set[int] = set()
        """Accounts (by their usage) of `_outcomes`."""

    def __len__(self) -> int:
        return len(self._requests)

    def find(self, request: int) -> Request | None:
        """A request that has not ended."""
        return self._requests.get(request)

    def active(self) -> tuple[Request, ...]:
        return tuple(self._requests.values())

    def submit(self, request: Request) -> None:
        request.seq.request = request
        request.seq.parked = False
        self._requests[request.id] = request
        self.speculating += request.speculates
        self.waiting.add(request)
        self._observer_of(request).submitted(request)

    def reject(self, request: int, seq: Sequence, error: Exception) -> None:
        """The request could not even be made."""
        self._ended.add(id(seq.account.usage))
        self._outcomes.append(Outcome(request, seq.id, seq.known, None, error))
        self._observer.refused(request, seq, error)

    def answer(self, request: int, seq: Sequence, value: Pinned) -> None:
        """What was asked needed no rows."""
        self._outcomes.append(Outcome(request, seq.id, seq.known, value))

    def ended_beside(self, request: Request) -> bool:
        """Whether a request of the same account ended since the last `take`."""
        return id(request.seq.account.usage) in self._ended

    def start(self, request: Request) -> None:
        """waiting -> running"""
        if request.state is RequestState.RUNNING:
            return
        self.waiting.remove(request)
        self.running.add(request)
        request.state = RequestState.RUNNING
        self._observer_of(request).started(request)

    def preempt(self, request: Request) -> None:
        """running -> waiting; what it was granted stays reserved."""
        if request.state is not RequestState.RUNNING:
            return
        self.running.remove(request)
        self.waiting.add(request)
        request.state = RequestState.WAITING
        self._observer_of(request).preempted(request)

    def withdraw(self, request: Request) -> None:
        """Refund what was reserved for the request and not computed."""
        refunded = request.grant.refund() if request.grant is not None else None
        if refunded is not None:
            seq = request.seq
            seq.unpay(refunded.start if refunded.rows else seq.known, refunded.heads)

    def stop(self, request: ExtendRequest, stop: Stop) -> None:
        """The extension ended; tokens of a stop string are taken off the sequence."""
        sampled = len(request.gains)
        kept = request.checker.kept() if sampled else 0
        self._close(request)
        if kept < sampled:
            self._drop_stop_string(request, kept)
        self._finish(request, request.extension(stop))

    def scored(self, request: ScoreRequest, *, refused: bool = False) -> None:
        self._close(request)
        self._finish(request, Scores(refused=True) if refused else request.scores())

    def fail(self, request: Request, error: Exception) -> None:
        self._close(request)
        self._finish(request, error)

    def gained(self, request: ExtendRequest, token: int) -> None:
        self._observer_of(request).gained(request)
        if request.streams:
            self._deltas.append(Delta(request.id, token))

    def take(self) -> tuple[list[Outcome], list[Delta]]:
        """What ended and what was gained since the last call."""
        outcomes, deltas = self._outcomes, self._deltas
        self._outcomes, self._deltas = [], []
        self._ended.clear()
        return outcomes, deltas

    def close(self) -> None:
        for request in self.active():
            self.fail(request, EngineClosed("the engine was closed before the request ended"))

    def _observer_of(self, request: Request) -> Observer:
        """Nobody is told of the engine's own requests."""
        return self._observer if request.id >= 0 else _NOBODY

    def _drop_stop_string(self, request: ExtendRequest, kept: int) -> None:
        seq = request.seq
        position = max(request.start + kept, 1)
        self._family.truncate(seq, position)
        tail = request.checker.tail()[: seq.memory.max_len - position]
        if tail:
            self._family.append(seq, tail)

    def _close(self, request: Request) -> None:
        """any -> done: refund what was reserved and not computed, and let others reserve it."""
        queue = self.running if request.state is RequestState.RUNNING else self.waiting
        queue.remove(request)
        request.state = RequestState.DONE
        del self._requests[request.id]
        self.speculating -= request.speculates
        self.withdraw(request)
        node = request.seq
        while node is not None:
            if node.payer is request:
                node.payer = None
            node = node.trunk
        request.seq.request = None

    def _finish(self, request: Request, result: Extension | Scores | Exception) -> None:
        """Requests of the engine's own, with negative ids, end without anybody being told."""
        if request.id < 0:
            return
        seq = request.seq
        value = None if isinstance(result, Exception) else result
        error = result if isinstance(result, Exception) else None
        self._ended.add(id(seq.account.usage))
        self._outcomes.append(Outcome(request.id, seq.id, seq.known, value, error))
        self._observer.ended(request, error)
