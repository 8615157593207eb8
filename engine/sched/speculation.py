"""Speculation beside the scheduler: rows for drafts at the end of a plan, and what of them a commit keeps.

Drafts come last. They take rows that a step has left and blocks that are free, never cached ones, so they are
the first to shrink when either is short. Verification is by coupled noise: each row draws the target's token
with the sequence's own noise, and a draft is accepted while it equals that token. So what is generated does
not depend on what was proposed.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeGuard

from ..drafting.adaptive import DraftLength, VerifyCost
from ..drafting.draft_model import DraftModels
from ..drafting.drafter import Drafter
from ..drafting.ngram import NgramDrafter
from ..drafting.params import DraftModel, Ngram, Speculate, Suffix
from ..drafting.suffix import SuffixDrafter
from ..protocol import SeqId, Verdict
from .ahead import Ahead
from .board import Board
from .counters import Counters
from .draft import Draft, PlannedSpan
from .family import Family
from .grant import Grant
from .memory import ModelMemory, Reservation
from .plan import Drawn, ModelResult, NotDrawn
from .request import ExtendRequest, Request, RequestState
from .sequence import Sequence

Take = Callable[[ExtendRequest, Drawn | NotDrawn], None]
"""Puts a drawn token on the sequence of its request."""


class _Candidate(NamedTuple):
    """A span behind which drafts may stand, its request, and how that speculates."""

    span: PlannedSpan
    request: ExtendRequest
    method: Speculate


class _Verified(NamedTuple):
    """A span with drafts, its request, and what was drawn from the span's last row on."""

    span: PlannedSpan
    ahead: Ahead
    request: ExtendRequest
    drawn: list[Drawn | NotDrawn]


class Speculation:
    """Chooses drafts, and accepts them. `cost` says what a verify row costs."""

    def __init__(
        self,
        memories: Mapping[str, ModelMemory],
        family: Family,
        board: Board,
        take: Take,
        cost: VerifyCost,
        counters: Counters,
        *,
        max_chunk_rows: int,
    ) -> None:
        self._memories = memories
        self._board = board
        self._take = take
        self.cost = cost
        self._counters = counters
        self._max_chunk_rows = max_chunk_rows
        self._models = DraftModels(memories, family, board)
        self.drafters: dict[type[Speculate], Drafter] = {
            Ngram: NgramDrafter(),
            Suffix: SuffixDrafter(),
            DraftModel: self._models,
        }
        self._lengths: dict[SeqId, DraftLength] = {}

    # In a plan

    def prepare(self) -> None:
        """Before a plan: let draft models write for the requests whose next row would decode."""
        self._models.collect()
        ready = [request for request in self._board.running if _awaits_model(request)]
        for request in ready:
            method, seq = request.params.speculate, request.seq
            if isinstance(method, DraftModel) and not self._models.has_draft(seq):
                price = self.cost.marginal(len(ready)) + self._relative_cost(method.model, seq)
                length = self._length(seq).choose(min(method.k, _tokens_ahead(request)), price)
                if length > 0:
                    self._models.start(request, method.model, length)

    def release_held(self, draft: Draft) -> bool:
        """After a plan: requests whose draft got no row wait no longer. Whether there were such."""
        return self._models.drop_idle(draft)

    def propose(self, draft: Draft) -> None:
        """Put drafts behind the decoding rows of requests that speculate, as far as it pays and fits."""
        for candidate in _candidates(draft):
            length = self._wanted(draft, candidate)
            if length <= 0:
                continue
            tokens = self.drafters[type(candidate.method)].propose(candidate.request.seq, length)
            if tokens:
                draft.add_ahead(candidate.span, Ahead(tuple(tokens), _take_free(candidate.span, len(tokens))))

    def give_back(self, span: PlannedSpan) -> None:
        """The step did not happen, or is over."""
        span.drop_ahead()

    def forget(self, seq: Sequence) -> None:
        """The sequence was cut or has ended."""
        for drafter in self.drafters.values():
            drafter.forget(seq)

    def release(self, seq: Sequence) -> None:
        """The sequence has ended."""
        self.forget(seq)
        self._lengths.pop(seq.id, None)

    def _wanted(self, draft: Draft, candidate: _Candidate) -> int:
        """The length that pays, within what the method, the end of the request, the step and free blocks
        allow. A draft model's was chosen when it began."""
        span, memory = candidate.span, candidate.span.holder.memory
        room = (len(span.reservation.blocks) + memory.pool.free) * memory.block_size - span.end
        most = min(
            candidate.method.k,
            _tokens_ahead(candidate.request),
            draft.rows_left,
            self._max_chunk_rows - 1,
            room,
        )
        if most <= 0 or isinstance(candidate.method, DraftModel):
            return most
        return self._length(candidate.request.seq).choose(
            most, self.cost.marginal(draft.sampled_rows(memory.name))
        )

    def _relative_cost(self, model: str, target: Sequence) -> float:
        """Time of a token on a draft model as a share of the target's, by the work of their rows."""
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

    # In a commit

    def accept(self, draft: Draft, results: Mapping[str, ModelResult]) -> None:
        """Commit what the target agrees with, token by token in turn, so that no branch runs ahead of what
        its meter would have granted without drafts."""
        verified = list(_verified(draft, results))
        for one in verified:
            self._count(one)
        active = verified
        while active:
            active = [one for one in active if self._advance(one)]
        for one in verified:
            self.give_back(one.span)
            self._learn(one)

    def _advance(self, one: _Verified) -> bool:
        """Accept the next draft of a span and take the token that its row drew; false where its run ends."""
        ahead, request = one.ahead, one.request
        place = ahead.accepted
        if request.state is RequestState.DONE or place == len(ahead.tokens):
            return False
        before, found = one.drawn[place : place + 2]
        agrees = isinstance(before, Drawn) and before.token == ahead.tokens[place]
        if not agrees or not self._granted(request):
            return False
        _install(one.span.holder, ahead)
        ahead.accepted += 1
        request.seq.account.usage.accepted_tokens += 1
        self._counters.accepted_tokens += 1
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

    def _count(self, one: _Verified) -> None:
        """The rows were computed, whatever becomes of them."""
        holder, rows = one.span.holder, len(one.ahead.tokens)
        usage, cost = holder.account.usage, holder.memory.info.cost
        usage.draft_tokens += rows
        self._counters.drafted_rows += rows
        usage.computed_flops += cost.rows(one.span.end, one.span.end + rows) + cost.heads(rows)

    def _learn(self, one: _Verified) -> None:
        seq = one.request.seq
        self._length(seq).learn(len(one.ahead.tokens), one.ahead.accepted)
        for drafter in self.drafters.values():
            drafter.observe(seq)


def _method(request: ExtendRequest) -> Speculate | None:
    """How it speculates; not at all where what stands on the sequence changes the rows behind a draft."""
    return None if request.params.sampling.penalises else request.params.speculate


def _tokens_ahead(request: ExtendRequest) -> int:
    """Drafts that the end of the request and of the context leave room for: the last token that a request
    may take needs no row behind it."""
    seq = request.seq
    return min(request.max_tokens - len(request.gains), seq.memory.max_len - seq.known) - 1


def _awaits_model(request: Request) -> TypeGuard[ExtendRequest]:
    """Whether a draft model could write for the request now: its next row decodes and is not granted yet."""
    if not isinstance(request, ExtendRequest) or not isinstance(_method(request), DraftModel):
        return False
    seq, granted = request.seq, request.grant is not None and request.grant.open is not None
    return not request.held and not granted and seq.trunk is None and seq.computed == seq.known - 1


def _candidates(draft: Draft) -> list[_Candidate]:
    """Spans of one new row that one request alone draws from."""
    found: list[_Candidate] = []
    for span in draft.spans.values():
        request = span.driver
        method = _method(request) if isinstance(request, ExtendRequest) else None
        if not isinstance(request, ExtendRequest) or method is None:
            continue
        alone = span.samplers == [request] and span.holder is request.seq
        if alone and span.start == span.write_from == span.end - 1:
            found.append(_Candidate(span, request, method))
    return found


def _take_free(span: PlannedSpan, count: int) -> list[int]:
    """Blocks for `count` rows behind the span, beyond those that it reserved."""
    memory = span.holder.memory
    needed = -(-(span.end + count) // memory.block_size) - len(span.reservation.blocks)
    return [memory.pool.allocate() for _ in range(needed)]


def _verified(draft: Draft, results: Mapping[str, ModelResult]) -> list[_Verified]:
    """The spans with drafts whose model returned, but for those that were spoiled."""
    found: list[_Verified] = []
    for name, result in results.items():
        drawn = {(one.seq, one.ahead): one for one in (*result.drawn, *result.not_drawn)}
        found += [
            _Verified(
                span,
                span.ahead,
                span.driver,
                [drawn[span.driver.seq.id, ahead] for ahead in range(len(span.ahead.tokens) + 1)],
            )
            for span in draft.of_model(name)[0]
            if span.ahead is not None and isinstance(span.driver, ExtendRequest)
        ]
    return found


def _install(holder: Sequence, ahead: Ahead) -> None:
    """The KV of the sequence's last token stands: its row was verified."""
    memory, blocks = holder.memory, holder.table.blocks
    fresh = (ahead.fresh.pop(0),) if holder.computed % memory.block_size == 0 else ()
    memory.install(holder, Reservation(None, fresh, (*blocks, *fresh) if fresh else blocks), holder.known)
