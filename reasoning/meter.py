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
        run, ticket, tokens = self._run, self._ticket, work.tokens
        clock, ledger = run.clock, run.ledger
        with ledger.lock:
            if ticket.suspended and not run.try_resume(ticket, self._track.holder):
                return Verdict.YIELD
            if clock.reproducible:
                scarce = run.scarce(self._caps)
                if not clock.may_grant(ticket, scarce=scarce):
                    return Verdict.DEFER
            if tokens and work.model == run.policy:
                room = run.kv.ask(self._track.holder, tokens, ticket, clock)
                if room is not Room.HERE:
                    return run.no_room(room)
            flops = self._flops(work)
            if not ledger.charge(tokens, flops, self._caps, answering=self._answering):
                return Verdict.REFUSED
            self._book(work, flops, 1)
            if tokens:
                clock.granted(ticket)
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
            flops = self._flops(work)
            run.ledger.refund(work.tokens, flops, self._caps)
            self._book(work, flops, -1)
            if work.tokens:
                run.clock.refunded(self._ticket)

    def _flops(self, work: Work) -> int:
        cost = self._run.models[work.model].cost
        return cost.rows(work.start, work.start + work.rows) + cost.heads(len(work.heads))

    def _book(self, work: Work, flops: int, sign: int) -> None:
        """Attribute the work to the nodes that hold its positions, and count it where `Usage` shows it."""
        run, track = self._run, self._track
        if work.rows == 1 and work.heads == (work.start,):
            track.charge(work.start, sign * flops)
        else:
            cost = run.models[work.model].cost
            track.charge_rows(work.start, work.rows, cost, sign)
            for position in work.heads:
                track.charge(position, sign * cost.heads(1))
        if work.kind is WorkKind.SCORE:
            run.ledger.scored_tokens += sign * work.rows
        elif work.start < track.prompt_stop:
            run.ledger.prompt_tokens += sign * track.prompt_rows(work.start, work.rows)
        tokens = sign * work.tokens
        if tokens:
            track.open_node.tokens_spent += tokens
            if work.model == run.policy:
                run.kv.resize(track.open_node, tokens)
            run.admission.count(self._ticket.path, tokens)
