"""The meter that the engine asks for every row of a branch: clock, budget and graph in one place."""

from ..engine.protocol import Verdict, Work, WorkKind
from .clock import Ticket
from .kv import Room
from .ledger import Cap
from .run import Run
from .track import Track


class BranchMeter:
    """Implements `engine.protocol.Meter` for one request of one branch.

    `track` attributes what is granted to the nodes of the branch's path, so that the sum of the node costs
    is the ledger.
    """

    def __init__(
        self, run: Run, ticket: Ticket, track: Track, caps: tuple[Cap, ...], *, answering: bool
    ) -> None:
        self._run = run
        self._ticket = ticket
        self._track = track
        self._caps = caps
        self._answering = answering

    def grant(self, work: Work) -> Verdict:
        """Called on the engine's thread while it plans."""
        run = self._run
        with run.ledger.lock:
            if self._ticket.suspended and not run.try_resume(self._ticket, self._track.holder):
                return Verdict.YIELD
            if not run.clock.may_grant(self._ticket, scarce=run.scarce(answering=self._answering)):
                return Verdict.DEFER
            if work.tokens and work.model == run.policy:
                room = run.kv.ask(self._track.holder, work.tokens, self._ticket, run.clock)
                if room is not Room.HERE:
                    return run.no_room(room)
            flops = self._flops(work)
            if not run.ledger.charge(work.tokens, flops, self._caps, answering=self._answering):
                return Verdict.REFUSED
            self._book(work, 1)
            if work.tokens:
                run.clock.granted(self._ticket)
            return Verdict.GRANTED

    def commit(self, work: Work) -> None:
        """The step that executed the work was committed."""
        if not work.tokens:
            return
        with self._run.ledger.lock:
            due = self._run.clock.committed(self._ticket)
        if due:
            self._run.wake()

    def refund(self, work: Work) -> None:
        """The work was granted and never executed."""
        run = self._run
        with run.ledger.lock:
            run.ledger.refund(work.tokens, self._flops(work), self._caps)
            self._book(work, -1)
            if work.tokens:
                run.clock.refunded(self._ticket)

    def _flops(self, work: Work) -> int:
        cost = self._run.models[work.model].cost
        return cost.rows(work.start, work.start + work.rows) + cost.heads(len(work.heads))

    def _book(self, work: Work, sign: int) -> None:
        """Attribute the work to the nodes that hold its positions, and count it where `Usage` shows it."""
        run, track = self._run, self._track
        cost = run.models[work.model].cost
        track.charge_rows(work.start, work.rows, cost, sign)
        for position in work.heads:
            track.charge(position, sign * cost.heads(1))
        if work.kind is WorkKind.SCORE:
            run.ledger.scored_tokens += sign * work.rows
        else:
            run.ledger.prompt_tokens += sign * track.prompt_rows(work.start, work.rows)
        if work.tokens:
            track.grow(sign * work.tokens)
            if work.model == run.policy:
                run.kv.resize(track.open_node, sign * work.tokens)
            run.admission.count(self._ticket.path, sign * work.tokens)
