"""The engine's decisions: commands in order, then plan, then commit or rollback. No torch, no threads, no
clock.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq

from ..drafting.cost import VerifyCost
from ..errors import CapacityError, QueueFullError, StepFailed
from ..kv.prefix import KvIdentity
from ..protocol import EngineUsage, ExtendParams, Meter, ModelInfo, Pinned, ScoreParams, SeqId
from ..text.profile import ModelProfile
from ..text.stop import Stop, StopRule
from ..text.tokenizer import Tokenizer
from .board import Board
from .check import check_scheduler
from .committer import Committer
from .counters import Counters
from .draft import Draft, failed_requests
from .fairness import Fairness
from .family import Family
from .kept import KeptRows
from .limits import DEFAULT_LIMITS, StepLimits
from .memory import ModelMemory
from .observer import Observer
from .plan import ModelPlan, ModelResult, StepPlan
from .planner import Planner
from .relief import Relief
from .request import Delta, ExtendRequest, Outcome, Request, ScoreRequest, StopWatch, cancelled_error
from .sequence import Sequence
from .speculation import Speculation
from .step_budget import StepBudget, is_out_of_memory

StopWatchFactory = Callable[[StopRule, ModelProfile, Tokenizer, Seq[int]], StopWatch]
"""Makes the watch of one extension from its rule and the ids that stand before it."""


class Scheduler:
    """Owns sequences, requests and blocks of all models. Not thread-safe: one thread calls it.

    The loop is: commands, `plan`, execute, then `commit` for the models that returned and `rollback` for
    those that raised, `take`. `commit` is the only writer of committed state; a plan holds reservations,
    references to KV that is committed already, and grants. At most one plan is in flight.
    """

    def __init__(
        self,
        memories: Mapping[str, ModelMemory],
        make_stop_watch: StopWatchFactory,
        limits: StepLimits = DEFAULT_LIMITS,
        *,
        check: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.memories = dict(memories)
        self._make_stop_watch = make_stop_watch
        self._limits = limits
        self._check = check
        self._kept = KeptRows(limits.max_kept_rows)
        self.counters = Counters()
        self.family = Family(self._kept.forget)
        observer = observer or Observer()
        self.board = Board(self.family, observer)
        self.relief = Relief(self.family, self.board, self._kept, self.counters, observer)
        self._fairness = Fairness(self.board)
        self.planner = Planner(self.family, self.board, self.relief, self._fairness, self.counters, limits)
        self._committer = Committer(self.family, self.board, self._kept, self.counters)
        self.speculation = Speculation(
            self.memories,
            self.family,
            self.board,
            self._committer.take,
            VerifyCost(limits.verify_fixed_rows),
            self.counters,
            max_chunk_rows=limits.max_chunk_rows,
        )
        self._budget = StepBudget(limits.max_rows)
        self._draft: Draft | None = None
        self._steps = 0

    # Commands, between steps only

    def open(
        self,
        seq: SeqId,
        tokens: Seq[int],
        *,
        seed: int,
        model: str,
        namespace: str = "",
        tenant: str | None = None,
        usage: EngineUsage | None = None,
    ) -> None:
        usage = EngineUsage() if usage is None else usage
        tenant = namespace if tenant is None else tenant
        self.family.open(seq, list(tokens), seed, self.memories[model], namespace, tenant, usage)

    def reload(self, model: str, info: ModelInfo, identity: KvIdentity) -> None:
        """Other weights for `model`, on which no sequence is open."""
        self.memories[model].reload(info, identity)

    def fork(self, seq: SeqId, children: Seq[tuple[SeqId, int]]) -> None:
        """Add (id, seed) children that share all KV of `seq`."""
        self.family.fork(self.family.sequences[seq], children)

    def append(self, seq: SeqId, tokens: Seq[int]) -> None:
        self.family.append(self.family.sequences[seq], tokens)

    def truncate(self, seq: SeqId, position: int) -> None:
        sequence = self.family.sequences[seq]
        self.family.truncate(sequence, position)
        self.speculation.forget(sequence)

    def park(self, seq: SeqId) -> None:
        """Give the blocks back, unless the sequence runs or shares a trunk with one that is not parked."""
        sequence = self.family.sequences.get(seq)
        if sequence is None or sequence.request is not None:
            return
        sequence.parked = True
        holder = sequence.holder
        if holder.table.blocks and holder.all_parked():
            self.relief.park(holder)

    def pin(self, request: int, seq: SeqId, until: float) -> None:
        """Answer the request with the positions that stay in the cache until `until`, or why they do not."""
        sequence = self.family.sequences[seq]
        try:
            positions = sequence.memory.pin(sequence, until)
        except CapacityError as error:
            self.board.reject(request, sequence, error)
        else:
            self.board.answer(request, sequence, Pinned(positions=positions))

    def unpin(self, seq: SeqId) -> None:
        """Of a sequence that may be released by now."""
        for memory in self.memories.values():
            memory.pins.unpin(seq)

    def expire_pins(self, now: float) -> None:
        """End the pins whose time is over at `now`."""
        for memory in self.memories.values():
            if len(memory.pins):
                memory.pins.expire(now)

    def release(self, seq: SeqId, *, pruned: bool = False) -> None:
        sequence = self.family.sequences.get(seq)
        if sequence is None:
            return
        if sequence.request is not None:
            self._cancel(sequence.request)
        self.family.release(sequence, dead=pruned)
        self.speculation.release(sequence)

    def extend(self, request: int, seq: SeqId, params: ExtendParams, meter: Meter, *, streams: bool) -> None:
        sequence = self.family.sequences[seq]
        if self._refused(request, sequence):
            return
        info = sequence.memory.info
        try:
            watch = self._make_stop_watch(params.stop, info.profile, info.tokenizer, tuple(sequence.tokens))
        except Exception as error:  # a rule or tokenizer that fails ends its own request, not the engine
            self.board.reject(request, sequence, error)
            return
        extension = ExtendRequest(request, sequence, params, meter, watch, streams=streams)
        self.board.submit(extension)
        if params.max_tokens <= 0:
            self.board.stop(extension, Stop.LENGTH)
        elif sequence.known >= sequence.memory.max_len:
            self.board.stop(extension, Stop.CONTEXT)

    def score(self, request: int, seq: SeqId, params: ScoreParams, meter: Meter) -> None:
        sequence = self.family.sequences[seq]
        if self._refused(request, sequence):
            return
        scoring = ScoreRequest(request, sequence, params, meter)
        self.board.submit(scoring)
        if scoring.complete:
            self.board.scored(scoring)

    def cancel(self, request: int) -> None:
        """End a request with what was committed so far. One that ended already is left alone."""
        found = self.board.find(request)
        if found is not None:
            self._cancel(found)

    def close(self) -> None:
        """Fail everything that is pending."""
        self.board.close()

    # The step

    def plan(self) -> StepPlan | None:
        """The next step, or None when nothing can run before a command or a meter changes something."""
        assert self._draft is None, "a plan is in flight"
        self._steps += 1
        draft = Draft(self._steps, self._budget.rows)
        self.speculation.prepare()
        self._fill(draft)
        if self.speculation.release_held(draft) and draft.empty:
            self._fill(draft)
        if draft.shares is not None:
            self._fairness.settle(draft.shares)
        self.speculation.propose(draft)
        if draft.empty:
            self._settle()
            return None
        self._draft = draft
        return draft.freeze(self._kept)

    def commit(self, plan: StepPlan, results: Mapping[str, ModelResult]) -> None:
        """Write what the step found. Models of the plan that are missing here must be rolled back before."""
        draft = self._in_flight(plan)
        for name, result in results.items():
            self.counters.scheduled_rows += draft.rows_of(name)
            self._committer.commit(draft, name, result)
            self._budget.succeeded(name)
        self.speculation.accept(draft, results)
        self.counters.steps += 1
        self._draft = None
        self._settle()

    def rollback(self, plan: StepPlan, failures: Mapping[str, Exception]) -> None:
        """Undo the part of the step on the models that raised: their requests fail, nothing else does. Where
        memory ran out for the first time they do not fail: the next step has fewer rows.

        Before `commit` of the same plan, which ends the step.
        """
        draft = self._in_flight(plan)
        for name, cause in failures.items():
            failed = failed_requests(draft, name)
            self._give_back(draft, name)
            if is_out_of_memory(cause) and self._retries(draft, name):
                self.counters.retried_steps += 1
                continue
            for request in failed:
                error = StepFailed(f"a step of model {name!r} failed: {cause!r}")
                error.__cause__ = cause
                self.board.fail(request, error)

    def timed(self, part: ModelPlan, seconds: float) -> None:
        """One model's part of a step took `seconds`: what speculating costs is read off that."""
        self.speculation.costs[part.model].observe(sum(len(span.tokens) for span in part.spans), seconds)

    def take(self) -> tuple[list[Outcome], list[Delta]]:
        """What ended and what was gained since the last call."""
        return self.board.take()

    def check(self) -> None:
        """Raise `InvariantError` if any bookkeeping contradicts a recount. Between steps."""
        check_scheduler(self.memories.values(), self.family, self.board)

    def _fill(self, draft: Draft) -> None:
        """Plan what each tenant may have of the step, where there are several."""
        draft.shares = self._fairness.divide(self._budget.rows) if self._fairness.several() else None
        self.planner.fill(draft)

    def _give_back(self, draft: Draft, name: str) -> None:
        """The step did not happen on model `name`."""
        rows = draft.rows_of(name)
        for span in draft.of_model(name)[0]:
            span.holder.memory.give_back(span.reservation)
            span.drop_ahead()
        self._kept.forget_again(name, draft.forgotten[name])
        self.counters.scheduled_rows += rows
        self.counters.failed_rows += rows
        self.counters.failed_steps += 1

    def _retries(self, draft: Draft, name: str) -> bool:
        rows = [span.end - span.start for span in draft.spans.values()]
        decodes = sum(count == 1 for count in rows)
        return self._budget.retry(name, decodes=decodes, prefills=sum(rows) - decodes)

    def _refused(self, request: int, seq: Sequence) -> bool:
        """Whether the queue of the sequence's tenant, or of all, is full; the request then ends at once."""
        limits, queue = self._limits, self.board.waiting
        who, waiting, limit = f"tenant {seq.tenant!r} has", queue.tenants[seq.tenant], limits.max_waiting
        if waiting < limit:
            who, waiting, limit = "all tenants have", len(queue), limits.max_waiting_in_all
        if waiting < limit:
            return False
        self.counters.refused_requests += 1
        message = f"{who} {waiting} requests waiting, the most are {limit}: try again later"
        self.board.reject(request, seq, QueueFullError(message))
        return True

    def _settle(self) -> None:
        for memory in self.memories.values():
            memory.settle()
        if self._check:
            self.check()

    def _in_flight(self, plan: StepPlan) -> Draft:
        draft = self._draft
        assert draft is not None, plan.step_id
        assert draft.step_id == plan.step_id, (draft.step_id, plan.step_id)
        return draft

    def _cancel(self, request: Request) -> None:
        if isinstance(request, ExtendRequest):
            self.board.stop(request, Stop.CANCELLED)
        else:
            self.board.fail(request, cancelled_error(request.seq.id))
