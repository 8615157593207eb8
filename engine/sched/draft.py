"""The step that is being planned: spans and samples, before they are frozen into a `StepPlan`."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from ..kv.prefix import BlockHash
from ..protocol import SeqId
from ..sampling.drafting import Proposal
from .ahead import Ahead, Path
from .fairness import StepShares
from .kept import KeptRows
from .memory import Reservation
from .plan import Copy, KeptSample, ModelPlan, Sample, Span, StepPlan
from .request import ExtendRequest, Request, ScoreRequest
from .sequence import Sequence


class PlannedSpan:
    """Rows `start <= p < end` of a holder, computed for `driver`; `samplers` draw from the last one."""

    __slots__ = (
        "ahead",
        "driver",
        "end",
        "holder",
        "keeps",
        "proposal",
        "reads",
        "redone",
        "reservation",
        "samplers",
        "start",
        "write_from",
    )

    def __init__(
        self, holder: Sequence, start: int, end: int, driver: Request, reservation: Reservation
    ) -> None:
        self.holder = holder
        self.start = start
        self.end = end
        self.write_from = holder.computed
        self.driver = driver
        self.reservation = reservation
        self.samplers: list[ExtendRequest] = []
        self.keeps = False
        self.ahead: Ahead | None = None
        self.proposal: Proposal | None = None
        """What its last row tests, with or without rows ahead."""
        self.redone = False
        """Its rows were not finite, perhaps for its draft's sake: they are computed again without one."""
        self.reads: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        if isinstance(driver, ScoreRequest):
            self.reads = driver.reads(start, end)

    @property
    def rows(self) -> int:
        """Rows to compute, those of a draft included."""
        rows = self.end - self.start
        return rows if self.ahead is None else rows + self.ahead.rows

    def drop_ahead(self) -> None:
        """Give back what was taken for a draft and not used."""
        if self.ahead is not None:
            self.holder.memory.pool.drop_all(self.ahead.take_blocks())
            self.ahead = None

    @property
    def has_copies(self) -> bool:
        """False for nearly all spans of nearly all steps."""
        return self.reservation.copy is not None or self.ahead is not None

    def copies(self) -> Iterable[Copy]:
        """Blocks to copy before the step."""
        if self.reservation.copy is not None:
            yield self.reservation.copy
        if self.ahead is not None:
            yield from self.ahead.copies()

    def requests(self) -> Iterable[Request]:
        """All that have rows or samples in this span, each once."""
        yield self.driver
        for request in self.samplers:
            if request is not self.driver:
                yield request

    def freeze(self) -> tuple[Span, ...]:
        """Its own span, and one for each further path of its draft."""
        holder, ahead = self.holder, self.ahead
        self.keeps = self._samples_later()
        source = self.driver.seq.tokens
        rewards, logprobs = self.reads
        own = Span(
            seq=holder.id,
            start=self.start,
            tokens=tuple(source[self.start : self.end]),
            blocks=self.reservation.blocks,
            write_from=self.write_from,
            samples=tuple([draw(request, proposal=self.proposal) for request in self.samplers]),
            keep_logits=self.keeps,
            reward_at=rewards,
            leading=self.driver.params.top_logprobs if isinstance(self.driver, ScoreRequest) else 0,
            logprob_at=logprobs,
            targets=tuple(source[row + 1] for row in logprobs),
        )
        if ahead is None:
            return (own,)
        first, *others = ahead.paths
        table = own.blocks[: self.start // holder.memory.block_size]
        return (
            self._along(own, first, (*own.blocks, *first.blocks) if first.blocks else own.blocks),
            *[self._along(own, path, (*table, *path.blocks)) for path in others],
        )

    def _along(self, own: Span, path: Path, blocks: tuple[int, ...]) -> Span:
        """The rows of one path of the draft, the span's own one before them."""
        assert self.ahead is not None
        (request,) = self.samplers
        proposals = self.ahead.proposals or [None] * len(path.tokens)
        places = range(path.fresh_from, len(path.tokens))
        samples = [
            draw(request, path.tokens[: place + 1], path.nodes[place], proposals[place]) for place in places
        ]
        return msgspec.structs.replace(
            own,
            tokens=own.tokens + path.tokens,
            blocks=blocks,
            samples=(*(own.samples if path is self.ahead.paths[0] else ()), *samples),
            drafted=len(path.tokens),
        )

    def _samples_later(self) -> bool:
        """Whether members of a trunk will want the last row's logits after this step."""
        holder = self.holder
        if not self.samplers or not holder.hidden or self.end != holder.known:
            return False
        return sum(member.plain for member in holder.members.values()) > len(self.samplers)


class PlannedDraw:
    """A sample from logits that an earlier step kept for the members of `trunk`."""

    __slots__ = ("request", "trunk")

    def __init__(self, trunk: Sequence, request: ExtendRequest) -> None:
        self.trunk = trunk
        self.request = request


class Draft:
    """What `plan` decided so far, and what is left of the step."""

    def __init__(self, step_id: int, max_rows: int, shares: StepShares | None = None) -> None:
        self.step_id = step_id
        self.rows_left = max_rows
        self.shares = shares
        """What each tenant may have of the step; None while one tenant has requests."""
        self.spans: dict[SeqId, PlannedSpan] = {}
        self.draws: list[PlannedDraw] = []
        self.started: Counter[str] = Counter()
        """Requests admitted in this step, per model: each will soon want a block."""
        self.forgotten: dict[str, tuple[SeqId, ...]] = {}
        self.has_drafts = False
        """Whether a span has rows ahead."""
        self._parts: dict[str, tuple[list[PlannedSpan], list[PlannedDraw]]] = {}
        self._producing: set[BlockHash] = set()
        self._busy: set[SeqId] = set()

    @property
    def empty(self) -> bool:
        return not self.spans and not self.draws

    def add_span(self, span: PlannedSpan) -> None:
        self.spans[span.holder.id] = span
        rows = span.end - span.start
        self.rows_left -= rows
        if self.shares is not None:
            self.shares.spend(span.driver.seq.tenant, rows)
        self._note_production(span)

    def add_ahead(self, span: PlannedSpan, ahead: Ahead) -> None:
        """Rows of a draft behind those of a span: no tenant's share pays for what the step has left."""
        span.ahead = ahead
        self.has_drafts = True
        self.rows_left -= ahead.rows

    def sampled_rows(self, model: str) -> int:
        """Spans of a model whose last row is drawn from."""
        return sum(bool(span.samplers) for span in self.spans.values() if span.holder.memory.name == model)

    def add_draw(self, draw: PlannedDraw) -> None:
        self.draws.append(draw)
        self._busy.add(draw.trunk.id)

    def left(self, tenant: str) -> int:
        """Rows of this step that are left for `tenant`."""
        return self.rows_left if self.shares is None else self.shares.left(tenant, self.rows_left)

    def hold(self, request: Request) -> None:
        """The share of the request's tenant is used up: the request gets what the others leave."""
        if self.shares is not None:
            self.shares.held.append(request)

    def touches(self, seq: Sequence) -> bool:
        """Whether blocks of `seq` take part in this step."""
        return seq.id in self.spans or seq.id in self._busy

    def produces(self, block: BlockHash) -> bool:
        """Whether a span of this step is writing the block with this hash."""
        return block in self._producing

    def freeze(self, kept: KeptRows) -> StepPlan:
        """The plan for the runners, rows grouped by model."""
        for span in self.spans.values():
            self._part(span.holder.memory.name)[0].append(span)
        for drawn in self.draws:
            self._part(drawn.trunk.memory.name)[1].append(drawn)
        self.forgotten = {name: kept.take_forgotten(name) for name in self._parts}
        models = tuple(self._freeze_model(name) for name in self._parts)
        return StepPlan(step_id=self.step_id, models=models)

    def _part(self, name: str) -> tuple[list[PlannedSpan], list[PlannedDraw]]:
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = ([], [])
        return part

    def of_model(self, name: str) -> tuple[list[PlannedSpan], list[PlannedDraw]]:
        """The frozen step's part on one model, in the order of the plan."""
        return self._parts[name]

    def rows_of(self, name: str) -> int:
        """Rows of the frozen step on one model."""
        return sum([span.rows for span in self._parts[name][0]])

    def _freeze_model(self, name: str) -> ModelPlan:
        spans, draws = self.of_model(name)
        return ModelPlan(
            model=name,
            spans=tuple([part for span in spans for part in span.freeze()]),
            copies=tuple([copy for span in spans if span.has_copies for copy in span.copies()]),
            kept_samples=tuple([KeptSample(drawn.trunk.id, draw(drawn.request)) for drawn in draws]),
            forget=self.forgotten[name],
        )

    def _note_production(self, span: PlannedSpan) -> None:
        """Full blocks that this span writes to: a sibling that needs the same ones waits for them."""
        holder, memory = span.holder, span.holder.memory
        if span.end - span.write_from <= 1:
            return
        size = memory.block_size
        for number in range(span.write_from // size, min(-(-span.end // size), holder.known // size)):
            self._producing.add(memory.block_hash(holder, number))


def draw(
    request: ExtendRequest, drafted: tuple[int, ...] = (), node: int = 0, proposal: Proposal | None = None
) -> Sample:
    """The request's next token; behind tokens of a draft, the one that follows them."""
    seq = request.seq
    position = seq.known + len(drafted)
    sampling, rules, drafting = request.params.sampling, request.rules, request.drafting
    return Sample(seq.id, seq.seed, position, sampling, rules, drafted, node, proposal, drafting)


def failed_requests(draft: Draft, model: str) -> list[Request]:
    """Every request with rows or a draw of this step on `model`, each once."""
    spans, draws = draft.of_model(model)
    requests = {request.id: request for span in spans for request in span.requests()}
    requests.update({drawn.request.id: drawn.request for drawn in draws})
    return list(requests.values())
