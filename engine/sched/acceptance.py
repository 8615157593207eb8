"""What a commit keeps of drafts: at every row the draft's next token, if it is the token that the row drew.

Whether rows draw with the target's own noise or by the ratio test makes no difference here: in both the drawn
token equals the draft's exactly if that is accepted.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import NamedTuple

from ..protocol import SeqId, Verdict
from .ahead import Ahead, Path
from .board import Board
from .counters import Counters
from .draft import Draft, PlannedSpan
from .grant import Grant
from .memory import ModelMemory, Reservation
from .plan import Drawn, ModelResult, NotDrawn
from .request import ExtendRequest, RequestState

Take = Callable[[ExtendRequest, Drawn | NotDrawn], None]
"""Puts a drawn token on the sequence of its request."""


class Verified:
    """A span with a draft, its request, and what was drawn from each row of the draft; `node` is the last
    row that was committed."""

    __slots__ = ("ahead", "drawn", "node", "request", "sound", "span")

    def __init__(
        self,
        span: PlannedSpan,
        ahead: Ahead,
        request: ExtendRequest,
        drawn: Mapping[int, Drawn | NotDrawn],
    ) -> None:
        self.span = span
        self.ahead = ahead
        self.request = request
        self.drawn = drawn
        self.node = 0
        self.sound = True
        """No row that the draft led to gave a value that is not finite."""

    def next(self) -> tuple[int, Path] | None:
        """The draft's row that holds the token which the present one drew."""
        drawn = self.drawn[self.node]
        return self.ahead.child(self.node, drawn.token) if isinstance(drawn, Drawn) else None


class Acceptance:
    """Commits accepted rows and the tokens that they drew."""

    def __init__(self, board: Board, take: Take, counters: Counters) -> None:
        self._board = board
        self._take = take
        self._counters = counters

    def accept(self, draft: Draft, results: Mapping[str, ModelResult]) -> list[Verified]:
        """Commit what the target agrees with, token by token in turn, so that no branch runs ahead of what
        its meter would have granted without drafts."""
        verified = _verified(draft, results)
        for one in verified:
            self._count(one)
        active = verified
        while active:
            active = [one for one in active if self._advance(one)]
        for one in verified:
            one.span.drop_ahead()
        return verified

    def _advance(self, one: Verified) -> bool:
        """Accept the next token of a draft and take what its row drew; false where its run ends.

        A row that is not finite decides nothing, for it may be the draft's doing: the run ends before it, and
        its position is computed again without a draft.
        """
        request = one.request
        if request.state is RequestState.DONE:
            return False
        following = one.next()
        if following is None:
            return False
        node, path = following
        one.sound = _is_finite(one.drawn[node])
        if not one.sound or not self._granted(request):
            return False
        _install(one.span, one.ahead, path)
        one.node = node
        one.ahead.accepted += 1
        request.seq.account.usage.accepted_tokens += 1
        self._counters.accepted_tokens += 1
        found = one.drawn[node]
        if request.grant is not None:
            request.grant.commit(request.seq.known, sampled=isinstance(found, Drawn))
        self._take(request, found)
        return True

    def _granted(self, request: ExtendRequest) -> bool:
        """Ask the meter for the accepted token's row and the token behind it, as a plan would have. What it
        refuses or defers the next plan asks for again.

        Once a request of the same account has ended, its search may want to change its mind before more is
        granted: nothing is asked for until it was told.
        """
        if self._board.ended_beside(request):
            return False
        work = request.work()
        try:
            verdict = request.meter.grant(work)
        except Exception as error:  # a broken meter fails its own request, not the engine
            self._board.fail(request, error)
            return False
        if verdict is not Verdict.GRANTED:
            return False
        request.seq.pay(work.start + work.rows, work.heads)
        request.grant = Grant(request.meter, work)
        return True

    def _count(self, one: Verified) -> None:
        """The rows were computed, whatever becomes of them."""
        holder, ahead, end = one.span.holder, one.ahead, one.span.end
        usage, cost = holder.account.usage, holder.memory.info.cost
        copies = len(list(ahead.copies()))
        usage.draft_tokens += ahead.rows
        usage.copied_blocks += copies
        self._counters.drafted_rows += ahead.rows
        self._counters.copied_blocks += copies
        first, *others = ahead.paths
        rows = cost.rows(end, end + len(first.tokens))
        rows += sum(cost.rows(end - 1, end + len(path.tokens)) for path in others)
        usage.computed_flops += rows + cost.heads(ahead.nodes)


class _Key(NamedTuple):
    seq: SeqId
    node: int


def _verified(draft: Draft, results: Mapping[str, ModelResult]) -> list[Verified]:
    """The spans with drafts whose model returned, but for those whose own row was spoiled."""
    found: list[Verified] = []
    for name, result in results.items():
        drawn = {_Key(one.seq, one.node): one for one in (*result.drawn, *result.not_drawn)}
        for span in draft.of_model(name)[0]:
            ahead, request = span.ahead, span.driver
            if ahead is None or not isinstance(request, ExtendRequest):
                continue
            rows = {node: drawn[_Key(request.seq.id, node)] for node in range(ahead.nodes + 1)}
            found.append(Verified(span, ahead, request, rows))
    return found


def _is_finite(found: Drawn | NotDrawn) -> bool:
    return isfinite(found.logprob) if isinstance(found, Drawn) else found.finite


def _install(span: PlannedSpan, ahead: Ahead, path: Path) -> None:
    """The KV of the sequence's last token stands: its row, which is on `path`, was verified.

    Where the path is another one than that of the rows before, its block takes the tail's place: it holds
    their KV too.
    """
    holder = span.holder
    memory = holder.memory
    number, offset = divmod(holder.computed, memory.block_size)
    if path is not ahead.path:
        ahead.path = path
        if offset:
            memory.swap_tail(holder, _taken(memory, path, number))
    fresh = () if offset else (_taken(memory, path, number),)
    blocks = holder.table.blocks
    memory.install(holder, Reservation(None, fresh, (*blocks, *fresh) if fresh else blocks), holder.known)


def _taken(memory: ModelMemory, path: Path, number: int) -> int:
    """Block `number` of a path, which is the sequence's from now on; the path's blocks before it go back."""
    *before, block = path.take(number)
    memory.pool.drop_all(before)
    return block
