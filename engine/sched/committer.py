"""What a step found, written into committed state. Nothing else writes it."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from math import isfinite

from ..errors import NumericsError, SamplingError
from ..protocol import SeqId, WorkKind
from .board import Board
from .counters import Counters
from .draft import Draft, PlannedDraw, PlannedSpan
from .family import Family
from .kept import KeptRows
from .plan import Drawn, ModelResult, NotDrawn, SpanScores
from .request import ExtendRequest, Request, ScoreRequest

_Found = Mapping[SeqId, Drawn | NotDrawn]
"""What came of each sequence's sample; those behind a draft are `speculation`'s."""


class Committer:
    """Takes the results of one model's part of a step: KV first, then draws and scores, then who has
    ended.
    """

    def __init__(self, family: Family, board: Board, kept: KeptRows, counters: Counters) -> None:
        self._family = family
        self._board = board
        self._kept = kept
        self._counters = counters

    def commit(self, draft: Draft, model: str, result: ModelResult) -> None:
        spans, draws = draft.of_model(model)
        scores = {found.seq: found for found in result.scores}
        drawn: _Found = {one.seq: one for one in (*result.drawn, *result.not_drawn) if one.node == 0}
        spoiled = spoiled_sequences(result)
        if spoiled:
            spans = [span for span in spans if not self._spoil_span(span, spoiled)]
            draws = [planned for planned in draws if not self._spoil_draw(planned, spoiled)]
        for span in spans:
            self._write(span, draft.step_id)
        for span in spans:
            self._settle(span, drawn)
            if span.holder.members:
                self._family.detach_ready_members(span.holder)
            if isinstance(span.driver, ScoreRequest):
                self._read(span, span.driver, scores.get(span.holder.id))
        for span in spans:
            for request in span.samplers:
                self.take(request, drawn[request.seq.id])
        for planned in draws:
            self._take_kept(planned, drawn[planned.request.seq.id], draft.step_id)
        for span in spans:
            self._keep(span)

    def _write(self, span: PlannedSpan, step_id: int) -> None:
        """The rows were computed: their KV stands."""
        holder = span.holder
        self._count(span)
        holder.memory.install(holder, span.reservation, span.end)
        holder.computed_once = max(holder.computed_once, span.end)
        holder.last_used = step_id

    def _count(self, span: PlannedSpan) -> None:
        """Each computed row counts once: as recomputed, or by why it was computed."""
        holder, counters = span.holder, self._counters
        usage, cost = holder.account.usage, holder.memory.info.cost
        again = min(max(holder.computed_once - span.start, 0), span.end - span.start)
        new = span.end - span.start - again
        usage.recomputed_tokens += again
        counters.recomputed_rows += again
        counters.copied_blocks += span.reservation.copy is not None
        kind = span.driver.kind
        counters.count_new(kind, new)
        if kind is WorkKind.DECODE:
            usage.decode_tokens += new
        elif kind is WorkKind.SCORE:
            usage.score_tokens += new
        else:
            usage.prefill_tokens += new
        heads = bool(span.samplers) + len(span.reads[0]) + len(span.reads[1])
        usage.computed_flops += cost.rows(span.start, span.end) + cost.heads(heads)

    def _settle(self, span: PlannedSpan, drawn: _Found) -> None:
        """Tell the meters: whoever reserved the rows, and whoever reserved only a head or a token."""
        gained = [request for request in span.samplers if isinstance(drawn[request.seq.id], Drawn)]
        payer = span.holder.payer
        if payer is not None and payer is not span.driver and payer.grant is not None:
            payer.grant.commit(span.end, sampled=payer in gained)
        for request in span.requests():
            if request.grant is not None:
                request.grant.commit(span.end, sampled=request in gained)

    def _read(self, span: PlannedSpan, request: ScoreRequest, found: SpanScores | None) -> None:
        rewards: Seq[float] = found.rewards if found else ()
        logprobs: Seq[float] = found.logprobs if found else ()
        request.gather(span.end, span.reads, rewards, logprobs, found.alternatives if found else ())
        if request.complete:
            self._board.scored(request)

    def take(self, request: ExtendRequest, found: Drawn | NotDrawn) -> None:
        """The sampled token goes on the sequence, which from now on is on its own."""
        seq = request.seq
        if isinstance(found, NotDrawn):
            self._board.fail(request, SamplingError(f"sequence {seq.id}: {found.reason}"))
            return
        if seq.trunk is not None:
            self._family.detach(seq)
        seq.tokens.append(found.token)
        seq.heads.extend(1)
        try:
            stop = request.accept(found)
        except Exception as error:  # a stop rule that fails on this text ends its own request
            self._board.fail(request, error)
            return
        self._counters.generated_tokens += request.id >= 0  # an engine's own request writes drafts
        self._board.gained(request, found.token)
        if stop is not None:
            self._board.stop(request, stop)

    def _take_kept(self, planned: PlannedDraw, found: Drawn | NotDrawn, step_id: int) -> None:
        request = planned.request
        planned.trunk.last_used = step_id
        if request.grant is not None:
            request.grant.commit(planned.trunk.known, sampled=isinstance(found, Drawn))
        if planned.trunk.logits_kept:
            self._kept.keep(planned.trunk)
        self.take(request, found)

    def _spoil_span(self, span: PlannedSpan, spoiled: set[SeqId]) -> bool:
        """End the requests of a span whose values are not finite, and keep its KV from everybody; with a
        draft behind it, whose doing that may be, it is as if the span had not been planned. False for any
        other span."""
        holder = span.holder
        if holder.id not in spoiled and not any(request.seq.id in spoiled for request in span.samplers):
            return False
        rows = span.rows
        self._counters.failed_rows += rows
        holder.memory.give_back(span.reservation)
        if span.ahead is not None:
            span.drop_ahead()
            span.redone = True
            return True
        holder.memory.hide(holder)
        if span.keeps:
            self._kept.never_needed(holder)
        for request in tuple(span.requests()):
            self._spoil(request, span.start + rows - 1)
        return True

    def _spoil_draw(self, planned: PlannedDraw, spoiled: set[SeqId]) -> bool:
        if planned.request.seq.id not in spoiled:
            return False
        self._spoil(planned.request, planned.trunk.known - 1)
        return True

    def _spoil(self, request: Request, position: int) -> None:
        self._counters.spoiled_requests += 1
        seq = request.seq
        message = (
            f"model {seq.memory.name!r} gave a value that is not finite for request {request.id} "
            f"on sequence {seq.id}, at position {position} or before"
        )
        self._board.fail(request, NumericsError(message))

    def _keep(self, span: PlannedSpan) -> None:
        """The runner kept the row's logits; a trunk whose members are all gone by now does not need them."""
        if not span.keeps:
            return
        if span.holder.id in self._family.sequences:
            self._kept.keep(span.holder)
        else:
            self._kept.never_needed(span.holder)


def spoiled_sequences(result: ModelResult) -> set[SeqId]:
    """Sequences whose row gave a value that is not finite: NaN or infinite logits leave no finite
    log-probability of any token. Rows behind a draft do not count: that they are reached at all is not
    known."""
    spoiled = {found.seq for found in result.drawn if found.node == 0 and not isfinite(found.logprob)}
    spoiled.update(found.seq for found in result.not_drawn if found.node == 0 and not found.finite)
    for found in result.scores:
        if not all(map(isfinite, found.rewards)) or not all(map(isfinite, found.logprobs)):
            spoiled.add(found.seq)
    return spoiled
