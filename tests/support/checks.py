"""Ready-made schedulers on the oracle model, stepped by hand with the invariant checker on."""

from __future__ import annotations

from collections.abc import Sequence

from branchwise.engine.drafting.params import Speculate
from branchwise.engine.kv.pool import BlockPool
from branchwise.engine.kv.prefix import KvIdentity, PrefixIndex
from branchwise.engine.protocol import (
    EngineUsage,
    ExtendParams,
    Extension,
    Meter,
    ModelInfo,
    ScoreParams,
    Scores,
    SeqId,
    Unlimited,
    Verdict,
    Work,
)
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.memory import ModelMemory
from branchwise.engine.sched.observer import Observer
from branchwise.engine.sched.plan import StepPlan
from branchwise.engine.sched.request import Outcome
from branchwise.engine.sched.scheduler import Scheduler, StepLimits
from branchwise.engine.text.stop import StopRule

from .oracle import IdStopWatch, OracleRunner, oracle_info


def extend_params(
    max_tokens: int = 8,
    *,
    temperature: float = 1.0,
    sampling: SamplingParams | None = None,
    order: tuple[int, ...] = (),
    speculate: Speculate | None = None,
    **stop: object,
) -> ExtendParams:
    return ExtendParams(
        sampling=sampling or SamplingParams(temperature=temperature),
        stop=StopRule(**stop),  # pyright: ignore[reportArgumentType]
        max_tokens=max_tokens,
        order=order,
        speculate=speculate,
    )


class RecordingMeter:
    """Grants what `verdicts` says next (GRANTED when it is empty) and keeps the books of every ask."""

    def __init__(self, tokens: int | None = None) -> None:
        self.tokens_left = tokens
        self.verdicts: list[Verdict] = []
        self.granted: list[Work] = []
        self.committed: list[Work] = []
        self.refunded: list[Work] = []
        self.asked = 0

    def grant(self, work: Work) -> Verdict:
        self.asked += 1
        if self.verdicts:
            verdict = self.verdicts.pop(0)
            if verdict is not Verdict.GRANTED:
                return verdict
        if self.tokens_left is not None:
            if work.tokens > self.tokens_left:
                return Verdict.REFUSED
            self.tokens_left -= work.tokens
        self.granted.append(work)
        return Verdict.GRANTED

    def commit(self, work: Work) -> None:
        self.committed.append(work)

    def refund(self, work: Work) -> None:
        if self.tokens_left is not None:
            self.tokens_left += work.tokens
        self.refunded.append(work)

    def balance(self) -> tuple[int, int, int]:
        """(rows, heads, tokens) granted and neither committed nor refunded; zeros once all requests ended."""
        sign = [(1, self.granted), (-1, self.committed), (-1, self.refunded)]
        return (
            sum(s * work.rows for s, works in sign for work in works),
            sum(s * len(work.heads) for s, works in sign for work in works),
            sum(s * work.tokens for s, works in sign for work in works),
        )

    def spent_rows(self) -> list[int]:
        """Every position whose row was committed, in order of commitment."""
        return [p for work in self.committed for p in range(work.start, work.start + work.rows)]


class Rig:
    """A scheduler with its oracle runners, stepped by hand."""

    def __init__(
        self,
        num_blocks: int = 64,
        block_size: int = 4,
        *,
        limits: StepLimits | None = None,
        infos: Sequence[ModelInfo] | None = None,
        digest_bytes: int = 16,
        max_model_len: int = 4096,
        check: bool = True,
        observer: Observer | None = None,
    ) -> None:
        infos = infos or [oracle_info(max_model_len=max_model_len)]
        self.runners = {info.name: OracleRunner(num_blocks, block_size) for info in infos}
        self.scheduler = Scheduler(
            {info.name: make_memory(info, num_blocks, block_size, digest_bytes) for info in infos},
            IdStopWatch,
            limits or StepLimits(),
            check=check,
            observer=observer,
        )
        self.outcomes: dict[int, Outcome] = {}
        self._next = 1

    @property
    def runner(self) -> OracleRunner:
        return next(iter(self.runners.values()))

    @property
    def memory(self) -> ModelMemory:
        return next(iter(self.scheduler.memories.values()))

    @property
    def pool(self) -> BlockPool:
        return self.memory.pool

    def new_id(self) -> int:
        self._next += 1
        return self._next - 1

    def open(
        self,
        tokens: Sequence[int],
        *,
        seed: int = 1,
        model: str = "policy",
        namespace: str = "",
        tenant: str | None = None,
        usage: EngineUsage | None = None,
    ) -> SeqId:
        seq = SeqId(self.new_id())
        self.scheduler.open(
            seq, tokens, seed=seed, model=model, namespace=namespace, tenant=tenant, usage=usage
        )
        return seq

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        children = [(SeqId(self.new_id()), seed) for seed in seeds]
        self.scheduler.fork(seq, children)
        return [child for child, _ in children]

    def extend(self, seq: SeqId, params: ExtendParams | None = None, meter: Meter | None = None) -> int:
        """Submit; the outcome is in `outcomes` under the returned id once it ended."""
        request = self.new_id()
        self.scheduler.extend(request, seq, params or extend_params(), meter or Unlimited(), streams=False)
        return request

    def score(self, seq: SeqId, params: ScoreParams, meter: Meter | None = None) -> int:
        request = self.new_id()
        self.scheduler.score(request, seq, params, meter or Unlimited())
        return request

    def step(self) -> StepPlan | None:
        """Plan, execute, commit or roll back; None when nothing could be planned."""
        plan = self.scheduler.plan()
        if plan is not None:
            self.finish(plan)
        self.collect()
        return plan

    def finish(self, plan: StepPlan) -> None:
        results, failures = {}, {}
        for model in plan.models:
            try:
                results[model.model] = self.runners[model.model].execute(model)
            except (ConnectionError, MemoryError) as error:  # the injected kinds; anything else is a bug
                failures[model.model] = error
        if failures:
            self.scheduler.rollback(plan, failures)
        self.scheduler.commit(plan, results)
        self.collect()

    def collect(self) -> None:
        for outcome in self.scheduler.take()[0]:
            assert outcome.request not in self.outcomes, "a request ended twice"
            self.outcomes[outcome.request] = outcome

    def run(self, *requests: int, steps: int = 2000) -> None:
        """Step until the given requests (all pending ones, if none is given) ended."""
        for _ in range(steps):
            self.collect()
            if all(request in self.outcomes for request in requests) and (
                requests or not len(self.scheduler.board)
            ):
                return
            assert self.step() is not None or all(r in self.outcomes for r in requests), "stuck"
        raise AssertionError(f"not done after {steps} steps")

    def extend_now(
        self, seq: SeqId, params: ExtendParams | None = None, meter: Meter | None = None
    ) -> Extension:
        request = self.extend(seq, params, meter)
        self.run(request)
        return self.extension(request)

    def score_now(self, seq: SeqId, params: ScoreParams, meter: Meter | None = None) -> Scores:
        request = self.score(seq, params, meter)
        self.run(request)
        return self.scores(request)

    def extension(self, request: int) -> Extension:
        value = self.outcomes[request].value
        assert isinstance(value, Extension), self.outcomes[request]
        return value

    def scores(self, request: int) -> Scores:
        value = self.outcomes[request].value
        assert isinstance(value, Scores), self.outcomes[request]
        return value

    def tokens(self, seq: SeqId) -> list[int]:
        return list(self.scheduler.family.sequences[seq].tokens)

    def blocks(self, seq: SeqId) -> tuple[int, ...]:
        return self.scheduler.family.sequences[seq].table.blocks


def make_memory(info: ModelInfo, num_blocks: int, block_size: int, digest_bytes: int = 16) -> ModelMemory:
    pool = BlockPool(num_blocks, block_size)
    identity = KvIdentity(weights_digest=info.weights_digest, kv_format="oracle", block_size=block_size)
    return ModelMemory(info.name, info, pool, PrefixIndex(pool, identity, digest_bytes=digest_bytes))
