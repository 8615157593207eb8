"""Speculation beside the scheduler: which drafts a plan verifies.

Drafts come last. They take rows that a step has left and blocks that are free, never cached ones, so they are
the first to shrink when either is short. Verified by coupled noise, each row draws the target's token with
the sequence's own noise, and a draft is accepted while it equals that token: what is generated does not
depend on what was proposed. Under the ratio test it does; so there a draft, once decided, stands until it is
used up (see `standing`), and only the rows ahead are what a step has left.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import NamedTuple, TypeGuard

from ..drafting.adaptive import DraftLength
from ..drafting.cost import StepCost, VerifyCost
from ..drafting.draft_model import DraftModels
from ..drafting.drafter import Drafter
from ..drafting.ngram import NgramDrafter
from ..drafting.params import DraftModel, Ngram, Speculate, Suffix
from ..drafting.suffix import SuffixDrafter
from ..protocol import SeqId
from ..sampling.drafting import Proposal
from .acceptance import Acceptance, Take, Verified
from .ahead import Ahead, Path, distinct
from .board import Board
from .counters import Counters
from .draft import Draft, PlannedSpan
from .family import Family
from .memory import ModelMemory
from .plan import Copy, ModelResult
from .request import ExtendRequest, Request
from .sequence import Sequence
from .standing import StandingDrafts


class _Candidate(NamedTuple):
    """A span behind which drafts may stand, its request, and how that speculates."""

    span: PlannedSpan
    request: ExtendRequest
    method: Speculate


class Speculation:
    """Chooses drafts, and learns from what became of them. `assumed` says what a verify row costs, until
    steps were timed."""

    def __init__(
        self,
        memories: Mapping[str, ModelMemory],
        family: Family,
        board: Board,
        take: Take,
        assumed: VerifyCost,
        counters: Counters,
        *,
        max_chunk_rows: int,
    ) -> None:
        self._memories = memories
        self._board = board
        self._assumed = assumed
        self._max_chunk_rows = max_chunk_rows
        self._acceptance = Acceptance(board, take, counters)
        self._models = DraftModels(memories, family, board)
        self.drafters: dict[type[Speculate], Drafter] = {
            Ngram: NgramDrafter(),
            Suffix: SuffixDrafter(),
            DraftModel: self._models,
        }
        self.lone_drafters: dict[type[Speculate], Drafter] = {
            Ngram: self.drafters[Ngram],
            Suffix: SuffixDrafter(alone=True),
        }
        """For the ratio test: those that look at nothing but the sequence."""
        self._standing = StandingDrafts()
        self._lengths: dict[SeqId, DraftLength] = {}
        self._plain_next: set[SeqId] = set()
        """Sequences whose next step has no rows ahead: those of the last one gave values that are not
        finite."""
        self.costs: Mapping[str, StepCost] = {name: StepCost(assumed) for name in memories}

    # In a plan

    def prepare(self) -> None:
        """Before a plan: let draft models write for the requests whose next row would decode."""
        self._models.collect()
        if not self._board.speculating:
            return
        ready = [request for request in self._board.running if self._awaits_model(request)]
        for request in ready:
            method, seq = request.params.speculate, request.seq
            assert isinstance(method, DraftModel)
            if method.verify == "ratio":
                length = self._decided_length(request, method)
            else:
                length = self._length(seq).choose(
                    min(method.k, _tokens_ahead(request)), self._price(method, seq, len(ready))
                )
            started = length > 0 and self._models.start(request, method, length)
            if not started and method.verify == "ratio":
                self._standing.put(seq, ())

    def release_held(self, draft: Draft) -> bool:
        """After a plan: requests whose draft got no row wait no longer. Whether there were such."""
        return self._models.drop_idle(draft)

    def propose(self, draft: Draft) -> None:
        """Put drafts behind the decoding rows of requests that speculate, as far as it pays and fits."""
        if not self._board.speculating:
            return
        for candidate in _candidates(draft):
            span, request, method = candidate
            if method.verify == "ratio":
                self._test(draft, candidate)
                continue
            length = 0 if request.seq.id in self._plain_next else self._wanted(draft, candidate)
            if length > 0:
                drafter = self.drafters[type(method)]
                self._put_ahead(draft, span, distinct(drafter.propose(request.seq, length, method.paths)))
            self._plain_next.discard(request.seq.id)

    def forget(self, seq: Sequence) -> None:
        """The sequence was cut or has ended."""
        for drafter in {*self.drafters.values(), *self.lone_drafters.values()}:
            drafter.forget(seq)
        self._standing.forget(seq)

    def release(self, seq: Sequence) -> None:
        """The sequence has ended."""
        self.forget(seq)
        self._lengths.pop(seq.id, None)
        self._plain_next.discard(seq.id)

    def _put_ahead(
        self,
        draft: Draft,
        span: PlannedSpan,
        paths: Seq[tuple[int, ...]],
        proposals: Seq[Proposal | None] = (),
    ) -> None:
        """Rows for the first path, which was cut to fit, and for those of the others that fit whole."""
        if not paths:
            return
        first, *others = paths
        size, memory = span.holder.memory.block_size, span.holder.memory
        reserved = len(span.reservation.blocks)
        taken = [memory.pool.allocate() for _ in range(-(-(span.end + len(first)) // size) - reserved)]
        found = [Path(first, reserved, taken)]
        left = min(draft.rows_left, self._max_chunk_rows - 1) - len(first)
        number, offset = divmod(span.start, size)
        for tokens in others:
            count = -(-(span.end + len(tokens)) // size) - number
            if len(tokens) >= left or memory.pool.free < count:
                continue
            left -= len(tokens) + 1
            blocks = [memory.pool.allocate() for _ in range(count)]
            copy = Copy(span.holder.table.blocks[number], blocks[0]) if offset else None
            found.append(Path(tokens, number, blocks, copy))
        draft.add_ahead(span, Ahead(found, proposals))

    def _wanted(self, draft: Draft, candidate: _Candidate) -> int:
        """The length that pays, within what the method and the step allow. A draft model's was chosen when it
        began."""
        span, request, method = candidate
        most = min(method.k, self._room(draft, candidate))
        if most <= 0 or isinstance(method, DraftModel):
            return most
        rows = draft.sampled_rows(span.holder.memory.name)
        return self._length(request.seq).choose(most, self._price(method, request.seq, rows))

    def _room(self, draft: Draft, candidate: _Candidate) -> int:
        """Rows ahead that the end of the request, the step and free blocks allow."""
        span, memory = candidate.span, candidate.span.holder.memory
        if not span.start == span.write_from == span.end - 1:
            return 0
        positions = (len(span.reservation.blocks) + memory.pool.free) * memory.block_size - span.end
        ahead = _tokens_ahead(candidate.request)
        return min(ahead, draft.rows_left, self._max_chunk_rows - 1, positions)

    def _price(self, method: Speculate, target: Sequence, rows: int) -> float:
        """Time of a draft token more for each of `rows` sampled rows, on all paths, as a share of a step."""
        cost = self.costs[target.memory.name]
        price = method.paths * cost.verify.marginal(rows)
        if not isinstance(method, DraftModel):
            return price
        writing = self.costs[method.model]
        if cost.known and writing.known:
            return price + writing.seconds(rows) / cost.seconds(rows)
        return price + self._relative_work(method.model, target)

    def _relative_work(self, model: str, target: Sequence) -> float:
        """Work of a token on a draft model as a share of the target's."""
        ours, theirs = self._memories[model].info.cost, target.memory.info.cost
        place = target.known
        return (ours.rows(place, place + 1) + ours.heads(1)) / (
            theirs.rows(place, place + 1) + theirs.heads(1)
        )

    def _length(self, seq: Sequence) -> DraftLength:
        length = self._lengths.get(seq.id)
        if length is None:
            length = self._lengths[seq.id] = DraftLength()
        return length

    def _awaits_model(self, request: Request) -> TypeGuard[ExtendRequest]:
        """Whether a draft model is to write for the request now: its next row decodes and is not granted yet,
        or the ratio test needs a decision."""
        if not isinstance(request, ExtendRequest) or request.held:
            return False
        method, seq = request.params.speculate, request.seq
        if not isinstance(method, DraftModel) or self._models.has_draft(seq):
            return False
        if method.verify == "ratio":
            return len(request.gains) > 0 and self._standing.rest(seq) is None
        granted = request.grant is not None and request.grant.open is not None
        decodes = seq.trunk is None and seq.computed == seq.known - 1
        return decodes and not granted and seq.id not in self._plain_next

    # The ratio test

    def _test(self, draft: Draft, candidate: _Candidate) -> None:
        """Let the span's row test the next token of the standing draft, and rows ahead the following ones.
        The first token of a request is drawn plainly: its row may be shared."""
        span, request, _ = candidate
        if not request.gains:
            return
        rest = self._standing.rest(request.seq)
        if rest is None:
            self._standing.put(request.seq, self._decide(candidate))
            rest = self._standing.rest(request.seq) or ()
        if rest:
            span.proposal = rest[0]
            plain = request.seq.id in self._plain_next
            room = 0 if plain else max(self._room(draft, candidate), 0)
            tokens = tuple([proposal.token for proposal in rest[:room]])
            self._put_ahead(draft, span, distinct([tokens]), (*rest[1:], None))
        self._plain_next.discard(request.seq.id)

    def _decide(self, candidate: _Candidate) -> Seq[Proposal]:
        """The draft for the next positions of the sequence, of its own history alone."""
        _, request, method = candidate
        if isinstance(method, DraftModel):
            return self._models.proposals(request.seq)
        length = self._decided_length(request, method)
        if length <= 0:
            return ()
        paths = self.lone_drafters[type(method)].propose(request.seq, length, 1)
        return [Proposal(token) for path in paths for token in path]

    def _decided_length(self, request: ExtendRequest, method: Speculate) -> int:
        """Called once for each draft: how the last one fared decides, and the assumed cost. No measured one,
        and nothing of the step: the text depends on it."""
        length = self._length(request.seq)
        drafted, accepted = self._standing.result(request.seq)
        if drafted:
            length.learn(drafted, accepted)
        price = self._assumed.marginal(1)
        if isinstance(method, DraftModel):
            price += self._relative_work(method.model, request.seq)
        return length.choose(min(method.k, _tokens_ahead(request)), price)

    # In a commit

    def accept(self, draft: Draft, results: Mapping[str, ModelResult]) -> None:
        """Commit what the target agrees with."""
        if not draft.has_drafts:
            return
        for one in self._acceptance.accept(draft, results):
            self._learn(one)
        self._plain_next.update([span.holder.id for span in draft.spans.values() if span.redone])

    def _learn(self, one: Verified) -> None:
        seq, method = one.request.seq, one.request.params.speculate
        if not one.sound:
            self._plain_next.add(seq.id)
        if method is not None and method.verify == "coupled":
            self._length(seq).learn(one.ahead.longest, one.ahead.accepted)
            self.drafters[type(method)].observe(seq)


def _tokens_ahead(request: ExtendRequest) -> int:
    """Drafts that the end of the request and of the context leave room for: the last token that a request
    may take needs no row behind it."""
    seq = request.seq
    return min(request.max_tokens - len(request.gains), seq.memory.max_len - seq.known) - 1


def _candidates(draft: Draft) -> list[_Candidate]:
    """Spans that one speculating request alone draws from."""
    found: list[_Candidate] = []
    for span in draft.spans.values():
        request = span.driver
        if not isinstance(request, ExtendRequest) or request.params.speculate is None:
            continue
        if span.samplers == [request] and span.holder is request.seq:
            found.append(_Candidate(span, request, request.params.speculate))
    return found
