"""One step's decisions: who computes which rows, who draws, and who waits."""

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

import msgspec

from ..errors import CapacityError
from .board import Board
from .counters import Counters
from .draft import Draft, PlannedDraw, PlannedSpan
from .fairness import Fairness
from .family import Family
from .granter import Granter
from .limits import StepLimits
from .memory import ModelMemory
from .relief import Relief
from .request import ExtendRequest, Request, RequestState
from .sequence import Sequence


class Target(msgspec.Struct, gc=False):
    """Where a request's next rows are: rows `start <= p < end` of `holder`."""

    holder: Sequence
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


class Planner:
    """Fills a `Draft`. One rule: `computed` chases `known`; decode is the case of one row, and prefill,
    scoring and resuming after preemption are the same case.

    Served in this order: running requests with one row, running ones with more, waiting ones by (priority,
    order, arrival), in turn where there are several tenants. Meters are asked first, then room is made, and
    only then are rows planned: nothing that is planned is taken back.

    Progress, where meters grant: a holder that was resumed keeps its blocks until it got further than it ever
    was, but for two last resorts. `_make_room` takes them only for a request that no running one before it
    waits behind for its share or a draft, and `_displace` only where nothing else could be planned. So the
    first running request of a model loses its blocks, if at all, to one that gains a row or a token in that
    step; until then it gets its tenant's turns, and so gains itself.
    """

    def __init__(
        self,
        family: Family,
        board: Board,
        relief: Relief,
        fairness: Fairness,
        counters: Counters,
        limits: StepLimits,
    ) -> None:
        self._family = family
        self._board = board
        self._relief = relief
        self._granter = Granter(board, relief)
        self._fairness = fairness
        self._counters = counters
        self._limits = limits

    def fill(self, draft: Draft) -> None:
        if draft.shares is not None:
            self._relief.make_way(draft.step_id)
        runnable = self._runnable(draft, self._board.running)
        if runnable:
            self._make_room(draft, runnable)
            for request in runnable:
                self._plan_rows(draft, request)
        short = self._admit(draft, self._board.waiting) if len(self._board.waiting) else []
        if draft.shares is not None:
            short += self._serve_held(draft, draft.shares.lift())
        if short and draft.empty:
            self._displace(draft, short)

    def _serve_held(self, draft: Draft, held: list[Request]) -> list[Request]:
        """What the tenants' shares leave of the step goes to whoever can use it; room is made for that only
        where the shares left all of it. Returns the waiting ones that found no room.
        """
        if draft.rows_left <= 0:
            return []
        runnable = self._runnable(draft, [r for r in held if r.state is RequestState.RUNNING])
        if draft.empty and runnable:
            self._make_room(draft, runnable)
        for request in runnable:
            self._plan_rows(draft, request)
        return self._admit(draft, [request for request in held if request.state is RequestState.WAITING])

    # Running requests

    def _runnable(self, draft: Draft, running: Iterable[Request]) -> list[Request]:
        """Running requests whose meter grants their next rows: those with one row first, within the step's
        rows and their tenant's share.
        """
        decodes: list[Request] = []
        prefills: list[Request] = []
        taken: Counter[str] = Counter()
        for request in running:
            seq = request.seq
            one_row = seq.trunk is None and request.end - min(seq.computed, request.first) <= 1
            if one_row:
                if draft.shares is not None and taken[seq.tenant] >= draft.left(seq.tenant):
                    draft.hold(request)
                elif len(decodes) < draft.rows_left and self._granter.granted(request):
                    decodes.append(request)
                    taken[seq.tenant] += 1
            else:
                prefills.append(request)
        if len(decodes) >= draft.rows_left:
            return decodes
        return decodes + [r for r in prefills if not self._waits_for_payer(r) and self._granter.granted(r)]

    def _make_room(self, draft: Draft, runnable: list[Request]) -> None:
        """Shrink `runnable` and free blocks until what is left fits."""
        for memory in {request.seq.memory.name: request.seq.memory for request in runnable}.values():
            if memory.pool.available < 2 * len(runnable) + 1:
                self._make_room_in(memory, draft, runnable)

    def _make_room_in(self, memory: ModelMemory, draft: Draft, runnable: list[Request]) -> None:
        mine = [request for request in runnable if request.seq.memory is memory]
        while mine and self._demand(mine) > memory.pool.available:
            first = min(mine, key=lambda request: request.key)
            spared = {first.seq.holder}
            if self._relief.park_one(memory, spared):
                continue
            victim = self._relief.preempt_one(memory, spared, draft.step_id, fresh=False)
            if victim is None and (len(mine) > 1 or not self._leads(draft, first)):
                waits = max(mine, key=lambda request: request.key)
                mine.remove(waits)
                runnable.remove(waits)
                continue
            if victim is None:
                victim = self._relief.preempt_one(memory, spared, draft.step_id, fresh=True)
            if victim is None:
                if memory.pins.give_up_one():
                    continue
                if not self._drop_shared_tail(first.seq.holder):
                    self._board.fail(first, CapacityError(f"the KV pool of {memory.name!r} is exhausted"))
                return
            for request in tuple(mine):
                if request.state is RequestState.WAITING:
                    mine.remove(request)
                    runnable.remove(request)

    def _leads(self, draft: Draft, request: Request) -> bool:
        """Whether no running request before it on its model waits only for its tenant's share or a draft."""
        waits = () if draft.shares is None else draft.shares.held
        return not any(
            other.seq.memory is request.seq.memory and (other.held or other in waits)
            for other in takewhile(lambda other: other.key < request.key, self._board.running)
        )

    def _demand(self, requests: list[Request]) -> int:
        """Blocks that the next row of each decoding request needs; of the first request's, where none
        decodes.
        """
        needs: dict[int, int] = {}
        prefill: Target | None = None
        for request in requests:
            target = self._target(request)
            holder = target.holder
            if target.rows == 1 or target.end <= holder.computed:
                needs[holder.id] = holder.memory.blocks_needed(holder, target.end)
            elif prefill is None:
                prefill = target
        if not needs and prefill is not None:
            return prefill.holder.memory.blocks_needed(prefill.holder, prefill.holder.computed + 1)
        return sum(needs.values())

    def _drop_shared_tail(self, holder: Sequence) -> bool:
        """The last resort of a holder that is alone and one block short: instead of copying its shared tail,
        compute that part again in its place. False where there is no such tail.
        """
        memory = holder.memory
        if not memory.tail_shared(holder):
            return False
        memory.cut(holder, holder.computed - holder.computed % memory.block_size)
        return True

    def _plan_rows(self, draft: Draft, request: Request) -> None:
        """Give a granted request its next rows or its draw, as far as blocks and the step's rows go."""
        if request.state is RequestState.DONE:
            return
        target = self._target(request)
        holder = target.holder
        span = draft.spans.get(holder.id)
        if span is not None:
            self._join(span, request)
            return
        if self._draws_kept(request, holder):
            assert isinstance(request, ExtendRequest)
            draft.add_draw(PlannedDraw(holder, request))
            return
        end = self._chunk_end(draft, request, target)
        if end > target.start:
            reservation = holder.memory.reserve(holder, end)
            span = PlannedSpan(holder, target.start, end, request, reservation)
            draft.add_span(span)
            self._join(span, request)
        else:
            draft.hold(request)

    def _join(self, span: PlannedSpan, request: Request) -> None:
        """Draw from the span's last row, if that is the row the request needs."""
        if isinstance(request, ExtendRequest) and self._draws_from(span, request):
            span.samplers.append(request)

    def _chunk_end(self, draft: Draft, request: Request, target: Target) -> int:
        holder = target.holder
        memory = holder.memory
        rows = min(draft.left(request.seq.tenant), self._limits.max_chunk_rows)
        end = min(target.end, target.start + rows)
        end = request.cut_chunk(target.start, end, holder.computed)
        available = memory.pool.available
        if available * memory.block_size <= end - target.start + memory.block_size:
            end = memory.reach(holder, end, available)  # short of blocks, or nearly
        return end

    # Waiting requests

    def _admit(self, draft: Draft, waiting: Iterable[Request]) -> list[Request]:
        """In strict order per model: one that finds no room blocks those behind it, one that its meter defers
        does not. Of several tenants, one that has more than its part of the blocks blocks only its own.
        Returns those that found no room.
        """
        blocked: set[str | tuple[str, str]] = set()
        short: list[Request] = []
        for request in waiting if draft.shares is None else self._fairness.in_turn(waiting):
            name, tenant = request.seq.memory.name, request.seq.tenant
            if name in blocked or (name, tenant) in blocked or request.state is not RequestState.WAITING:
                continue
            if self._must_wait(draft, request) or not self._granter.granted(request):
                continue
            if self._waits_for_block(draft, request):
                self._counters.deferred_for_prefix += 1
                continue
            if not self._has_room(draft, request):
                may_wait_alone = draft.shares is not None and not self._relief.starves(request)
                blocked.add((name, tenant) if may_wait_alone else name)
                short.append(request)
                continue
            self._start(draft, request)
        return short

    def _must_wait(self, draft: Draft, request: Request) -> bool:
        """Whether the step is full, or another request is at work on the rows of this one's trunk."""
        holder = request.seq.holder
        span = draft.spans.get(holder.id)
        if span is not None:
            return not (isinstance(request, ExtendRequest) and self._draws_from(span, request))
        if self._draws_kept(request, holder):
            return False
        if draft.rows_left <= 0 or self._waits_for_payer(request):
            return True
        if draft.left(request.seq.tenant) > 0:
            return False
        draft.hold(request)
        return True

    def _waits_for_block(self, draft: Draft, request: Request) -> bool:
        """In-step pending producers: a sibling whose next block is being computed in this step is held one
        step.
        """
        holder = request.seq.holder
        if draft.touches(holder) or not draft.spans:
            return False
        memory, end = holder.memory, self._target(request).end
        number = holder.computed // memory.block_size + len(memory.cached_ahead(holder, end))
        if (number + 1) * memory.block_size > end:
            return False
        return draft.produces(memory.block_hash(holder, number))

    def _has_room(self, draft: Draft, request: Request) -> bool:
        """Whether all rows of the request and one block to grow fit beside those that run; idle holders make
        room.
        """
        memory = request.seq.memory
        while self._blocks_to_admit(draft, request) > memory.pool.available:
            spared = self._spared(draft, request)
            if self._relief.park_one(memory, spared):
                continue
            if (
                not draft.empty
                or self._relief.preempt_one(memory, spared, draft.step_id, fresh=False) is None
            ):
                return False
        return True

    def _displace(self, draft: Draft, short: list[Request]) -> None:
        """Where nothing else can be planned, whoever holds the pool gives way to the first request that found
        no room: else members that are deferred could lock out the one that may run. Who writes a draft goes
        before all others, as somebody waits for that.
        """
        for request in sorted(short, key=lambda request: request.id >= 0):
            memory, spared = request.seq.memory, self._spared(draft, request)
            while self._blocks_to_admit(draft, request) > memory.pool.available:
                if self._relief.preempt_one(memory, spared, draft.step_id, fresh=True) is None:
                    break
            self._start(draft, request)
            if draft.empty:  # what it found in the cache left it no block
                self._make_room(draft, [request])
                self._plan_rows(draft, request)
            if not draft.empty:
                return

    def _blocks_to_admit(self, draft: Draft, request: Request) -> int:
        """Blocks for all missing rows, a block to grow and a margin for those that run."""
        memory, target = request.seq.memory, self._target(request)
        holder = target.holder
        running = len(self._board.running)
        reserve = max(1 + running // memory.block_size, int(self._limits.watermark * memory.pool.total))
        margin = draft.started[memory.name] + (reserve if running else 0)
        if draft.touches(holder):
            return margin
        hits = memory.cached_ahead(holder, target.end)
        missing = memory.blocks_needed(holder, max(target.end, holder.computed))
        found_elsewhere = sum(memory.pool.refs(block) > 0 for block in hits)
        return max(missing - found_elsewhere, 0) + margin

    def _spared(self, draft: Draft, request: Request) -> set[Sequence]:
        spared = {span.holder for span in draft.spans.values()}
        spared.update(drawn.trunk for drawn in draft.draws)
        spared.add(request.seq.holder)
        return spared

    def _start(self, draft: Draft, request: Request) -> None:
        """waiting -> running: take what the cache has, then the first rows."""
        self._board.start(request)
        draft.started[request.seq.memory.name] += 1
        holder = request.seq.holder
        while not draft.touches(holder):
            self._take_cached(request, holder)
            if holder.computed_once > holder.computed:
                holder.resumed_at, holder.resumed_from = draft.step_id, holder.computed_once
            self._family.detach_ready_members(holder)
            if request.seq.holder is holder:
                break
            holder = request.seq.holder
        self._plan_rows(draft, request)

    def _take_cached(self, request: Request, holder: Sequence) -> None:
        memory = holder.memory
        hits = memory.cached_ahead(holder, self._target(request).end)
        if not hits:
            return
        before = holder.computed
        memory.adopt(holder, hits)
        if request.grant is not None:
            request.grant.commit_cached(holder.computed)
        skipped_until = min(holder.computed, max(request.first, before))
        found = max(0, skipped_until - max(before, holder.computed_once))
        holder.account.usage.cached_tokens += found
        self._counters.cached_tokens += found
        self._counters.recompute_hit_tokens += max(0, min(skipped_until, holder.computed_once) - before)

    # What a request needs

    def _target(self, request: Request) -> Target:
        seq = request.seq
        if seq.trunk is None:
            return Target(seq, min(seq.computed, request.first), request.end)
        holder = seq.holder
        end = min(request.end, seq.shared_positions())
        return Target(holder, min(holder.computed, request.first, end - 1), end)

    def _draws_kept(self, request: Request, holder: Sequence) -> bool:
        """Whether the logits that the request needs were kept by the step that computed them."""
        return (
            holder.logits_kept
            and isinstance(request, ExtendRequest)
            and holder.computed == holder.known
            and request.seq.trunk is holder
            and request.seq.plain
        )

    def _draws_from(self, span: PlannedSpan, request: Request) -> bool:
        seq = request.seq
        return span.end == seq.known and (seq.trunk is None or seq.shared_positions() == seq.known)

    def _waits_for_payer(self, request: Request) -> bool:
        payer = request.seq.holder.payer
        return payer is not None and payer is not request
