"""Asking the meters: nothing is computed that no meter granted."""

from ..protocol import Verdict
from ..text.stop import Stop
from .board import Board
from .grant import Grant
from .relief import Relief
from .request import ExtendRequest, Request, ScoreRequest


class Granter:
    """Gets requests their grants, and does with a request what its meter says."""

    def __init__(self, board: Board, relief: Relief) -> None:
        self._board = board
        self._relief = relief

    def granted(self, request: Request) -> bool:
        """Ask the request's meter for what it needs next, unless that is reserved already."""
        if request.held:
            return False
        if self._holds_grant(request):
            return True
        work = request.work()
        if work is None:
            return True
        try:
            verdict = request.meter.grant(work)
        except Exception as error:  # a broken meter fails its own request, not the engine
            self._board.fail(request, error)
            return False
        if verdict is Verdict.GRANTED:
            request.grant = Grant(request.meter, work)
            request.seq.pay(work.start + work.rows, work.heads)
            if work.rows:
                self._set_payer(request)
            return True
        if verdict is Verdict.YIELD:
            self._yield(request)
        elif verdict is Verdict.REFUSED:
            self._refuse(request)
        return False

    def _holds_grant(self, request: Request) -> bool:
        """Whether what the request needs next is reserved. A grant that counted on rows or a head which
        another member had reserved, and lost since, is withdrawn.
        """
        work = request.grant.open if request.grant is not None else None
        if work is None:
            return False
        seq = request.seq
        rows_stand = seq.first_unpaid() >= work.start + work.rows
        if rows_stand and (work.tokens == 0 or seq.heads.paid(request.first)):
            return True
        self._board.withdraw(request)
        return False

    def _yield(self, request: Request) -> None:
        """The meter wants the request's own blocks back; what it shares through a trunk is not its to
        give.
        """
        if request.seq.table.blocks:
            self._relief.preempt(request.seq)
        else:
            self._board.preempt(request)

    def _set_payer(self, request: Request) -> None:
        node = request.seq
        while node is not None:
            node.payer = request
            node = node.trunk

    def _refuse(self, request: Request) -> None:
        if isinstance(request, ExtendRequest):
            self._board.stop(request, Stop.BUDGET)
        elif isinstance(request, ScoreRequest):
            self._board.scored(request, refused=True)
