"""The invariants of sequences, trunks and requests, recounted from scratch; those of blocks are in
`kv.check`.
"""

from collections import Counter
from collections.abc import Iterable

from ..kv.check import InvariantError, TableView, check_memory
from ..sampling.counts import TokenCounts
from .board import Board
from .family import Family
from .memory import ModelMemory
from .request import RequestState
from .sequence import Sequence


def check_scheduler(memories: Iterable[ModelMemory], family: Family, board: Board) -> None:
    """Raise `InvariantError` if any bookkeeping contradicts a recount. Between steps only."""
    sequences = family.sequences.values()
    viewers = Counter(seq.holder.id for seq in sequences if not seq.hidden)
    for seq in sequences:
        _check_sequence(seq)
        _require(not seq.computed or seq.weight == viewers[seq.id], "viewers", seq.id, seq.weight, viewers)
    for memory in memories:
        _require(not memory.pending_copies(), "copies pending between steps", memory.pending_copies())
        tables = [
            TableView(s.account, s.table.blocks, s.computed, viewers[s.id], s.published, s.tokens)
            for s in sequences
            if s.memory is memory
        ]
        check_memory(memory.pool, memory.index, tables, memory.accounts())
    _check_board(board)


def _check_sequence(seq: Sequence) -> None:
    """One sequence, and its place in the family."""
    _require(seq.hidden or len(seq.heads) == seq.known, "heads", seq.id, len(seq.heads), seq.known)
    _require(seq.known >= 1, "empty sequence", seq.id)
    _require(seq.hidden or not seq.members, "a visible sequence has members", seq.id)
    _require(not seq.hidden or bool(seq.members), "a trunk without members", seq.id)
    _require(seq.weight == _weight(seq), "weight", seq.id, seq.weight, _weight(seq))
    _require(all(member.trunk is seq for member in seq.members.values()), "members", seq.id)
    _require(1 <= seq.prompt_length <= seq.known, "prompt", seq.id, seq.prompt_length, seq.known)
    if seq.counts is not None:
        _check_counts(seq, seq.counts)
    trunk = seq.trunk
    if trunk is None:
        _require(seq.computed <= seq.paid_rows, "computed beyond paid", seq.id, seq.computed, seq.paid_rows)
        return
    _require(seq.id in trunk.members, "not a member of its trunk", seq.id, trunk.id)
    _require(not seq.table.blocks, "a member holds blocks", seq.id, seq.table.blocks)
    _require(1 <= seq.base <= trunk.known, "base", seq.id, seq.base, trunk.known)
    _require(seq.tokens[: seq.base] == trunk.tokens[: seq.base], "tokens differ from the trunk's", seq.id)
    shared, stands = seq.shared_positions(), seq.holder.computed
    _require(seq.plain or stands < shared, "a member should have detached", seq.id, shared, stands)


def _check_counts(seq: Sequence, counts: TokenCounts) -> None:
    """The counts of a sequence are those of the tokens that they claim to have counted."""
    recounted = TokenCounts()
    recounted.follow(seq.tokens[: counts.counted], seq.prompt_length)
    _require(counts.counted <= seq.known, "counted beyond known", seq.id, counts.counted, seq.known)
    found, right = counts.standing(), recounted.standing()
    _require(found == right, "counts", seq.id, found, right)


def _weight(seq: Sequence) -> int:
    if not seq.hidden:
        return 1
    return sum(_weight(member) for member in seq.members.values())


def _check_board(board: Board) -> None:
    """Each request is in the queue that its state names, and its sequence knows it."""
    queued = [*board.waiting, *board.running]
    _require(len(queued) == len(board), "requests outside the queues", len(queued), len(board))
    for request in board.waiting:
        _require(request.state is RequestState.WAITING, "state", request.id, request.state)
    for request in board.running:
        _require(request.state is RequestState.RUNNING, "state", request.id, request.state)
    for request in queued:
        _require(request.seq.request is request, "the sequence does not know its request", request.id)


def _require(condition: bool, message: str, *values: object) -> None:
    if not condition:
        raise InvariantError(f"{message}: {values}")
