"""Every verb in any order, on a pool so small that everything happens, equals the engine that recomputes
everything.
"""

from __future__ import annotations

import os
from functools import partial

import pytest
from branchwise.engine.drafting.params import Speculate
from branchwise.engine.errors import CapacityError, StepFailed
from branchwise.engine.protocol import EngineUsage, ExtendParams, Extension, ScoreParams, SeqId, Verdict
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.sched.request import Outcome
from branchwise.engine.sched.scheduler import StepLimits
from branchwise.engine.text.stop import Stop
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.checks import extend_params
from support.machine import (
    MAX_LEN,
    PROMPTS,
    SAMPLING,
    SPECULATE,
    PathMeter,
    Pending,
    check_scores,
    make_rig,
    ratio_tested,
    spoil,
    uncut,
)
from support.oracle import EOS, NaiveEngine

EXAMPLES = int(os.environ.get("BRANCHWISE_EXAMPLES", "30"))
MANY_EXAMPLES = 2000
VERDICTS = [Verdict.GRANTED, Verdict.GRANTED, Verdict.DEFER, Verdict.YIELD]


class EngineMachine(RuleBasedStateMachine):
    """The model: token lists, seeds, and what is pending. The engine: scheduler, paged KV, oracle runner."""

    @initialize(
        blocks=st.sampled_from([9, 12, 40]),
        rows=st.sampled_from([1, 3, 64]),
        chunk=st.sampled_from([1, 5, 64]),
        kept=st.sampled_from([0, 1, 64]),
        digest_bytes=st.sampled_from([1, 16]),
        fixed=st.sampled_from([0.1, 1000.0]),
        drafts=st.integers(0, 99),
    )
    def start(
        self, blocks: int, rows: int, chunk: int, kept: int, digest_bytes: int, fixed: float, drafts: int
    ) -> None:
        limits = StepLimits(max_rows=rows, max_chunk_rows=chunk, max_kept_rows=kept, verify_fixed_rows=fixed)
        self.rig = make_rig(blocks, limits, digest_bytes, drafts)
        self.usage = EngineUsage()
        self.tokens: dict[SeqId, list[int]] = {}
        self.seeds: dict[SeqId, int] = {}
        self.models: dict[SeqId, str] = {}
        self.prompts: dict[SeqId, int] = {}
        self.paths: dict[SeqId, list[object]] = {}
        self.charged: set[object] = set()
        self.meters: list[PathMeter] = []
        self.pending: dict[int, Pending] = {}
        self.next_seed = 100
        self.spoiled_rows = 0
        self.now = 0.0

    # Commands

    @rule(
        prompt=st.sampled_from(PROMPTS),
        model=st.sampled_from(["policy", "policy", "prm"]),
        tenant=st.sampled_from(["a", "a", "b"]),
    )
    def open(self, prompt: list[int], model: str, tenant: str) -> None:
        if len(self.tokens) < 12:
            seed = self.fresh_seed()
            seq = self.rig.open(prompt, seed=seed, model=model, namespace=tenant, usage=self.usage)
            self.remember(seq, prompt, self.next_seed, model, None)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), count=st.integers(1, 4))
    def fork(self, data: st.DataObject, count: int) -> None:
        seq = data.draw(st.sampled_from(self.idle()))
        seeds = [self.fresh_seed() for _ in range(count)]
        for child, seed in zip(self.rig.fork(seq, seeds), seeds, strict=True):
            self.remember(child, self.tokens[seq], seed, self.models[seq], seq)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), count=st.integers(1, 6))
    def append(self, data: st.DataObject, count: int) -> None:
        seq = data.draw(st.sampled_from(self.idle()))
        added = [11 + seq % 3] * min(count, MAX_LEN - len(self.tokens[seq]))
        self.rig.scheduler.append(seq, added)
        self.tokens[seq] = self.tokens[seq] + added
        self.paths[seq] = self.paths[seq] + [object() for _ in added]

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.idle()))
        position = data.draw(st.integers(1, len(self.tokens[seq])))
        self.rig.scheduler.truncate(seq, position)
        self.tokens[seq] = self.tokens[seq][:position]
        self.prompts[seq] = min(self.prompts[seq], position)
        self.paths[seq] = self.paths[seq][:position]

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        self.rig.scheduler.park(data.draw(st.sampled_from(sorted(self.tokens))))

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), seconds=st.sampled_from([1.0, 5.0]))
    def pin(self, data: st.DataObject, seconds: float) -> None:
        request = self.rig.new_id()
        self.rig.scheduler.pin(request, data.draw(st.sampled_from(self.idle())), self.now + seconds)
        self.rig.collect()
        assert isinstance(self.rig.outcomes[request].error, CapacityError | None)

    @rule()
    def time_passes(self) -> None:
        if hasattr(self, "rig"):
            self.now += 2.0
            self.rig.scheduler.expire_pins(self.now)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), pruned=st.booleans())
    def release(self, data: st.DataObject, pruned: bool) -> None:
        seq = data.draw(st.sampled_from(sorted(self.tokens)))
        self.rig.scheduler.release(seq, pruned=pruned)
        del self.tokens[seq]
        self.collect()

    @precondition(lambda self: self.idle())
    @rule(
        data=st.data(),
        count=st.integers(0, 9),
        sampling=st.sampled_from(SAMPLING),
        eos=st.booleans(),
        strings=st.sampled_from([(), ("3",), ("17 4", "8")]),
        budget=st.sampled_from([None, None, 0, 3]),
        order=st.integers(0, 2),
        speculate=st.sampled_from(SPECULATE),
        ratio=st.booleans(),
    )
    def extend(
        self,
        data: st.DataObject,
        count: int,
        sampling: SamplingParams,
        eos: bool,
        strings: tuple[str, ...],
        budget: int | None,
        order: int,
        speculate: Speculate | None,
        ratio: bool,
    ) -> None:
        speculate = ratio_tested(speculate, sampling) if ratio else speculate
        lm = [seq for seq in self.idle() if self.models[seq] == "policy"]
        if not lm:
            return
        seq = data.draw(st.sampled_from(lm))
        params = extend_params(
            count,
            sampling=sampling,
            order=(order,),
            speculate=speculate,
            strings=strings,
            eos_ids=frozenset({EOS, 5} if eos else ()),
        )
        pending = self.new_pending(seq, budget, data)
        pending.params = params
        self.pending[self.rig.extend(seq, params, pending.meter)] = pending
        self.collect()

    @rule(
        prompt=st.sampled_from(PROMPTS),
        children=st.integers(2, 7),
        tokens=st.integers(4, 20),
        steps=st.integers(0, 6),
        keep_root=st.booleans(),
        speculate=st.sampled_from(SPECULATE),
    )
    def burst(
        self,
        prompt: list[int],
        children: int,
        tokens: int,
        steps: int,
        keep_root: bool,
        speculate: Speculate | None,
    ) -> None:
        """A best-of-n that outgrows the pool, some steps into it."""
        root = self.rig.open(prompt, seed=self.fresh_seed(), model="policy", usage=self.usage)
        self.remember(root, prompt, self.next_seed, "policy", None)
        seeds = [self.fresh_seed() for _ in range(children)]
        for child, seed in zip(self.rig.fork(root, seeds), seeds, strict=True):
            self.remember(child, prompt, seed, "policy", root)
            pending = self.pend(child, None)
            pending.params = extend_params(tokens, order=(0, child), speculate=speculate)
            self.pending[self.rig.extend(child, pending.params, pending.meter)] = pending
        if not keep_root:
            self.rig.scheduler.release(root)
            del self.tokens[root]
        self.step(steps)

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def score(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.idle()))
        known = len(self.tokens[seq])
        if self.models[seq] == "policy":
            params = ScoreParams(logprobs_from=data.draw(st.integers(1, known)))
        else:
            positions = data.draw(st.lists(st.integers(0, known - 1), max_size=4))
            params = ScoreParams(reward_at=tuple(positions))
        pending = self.new_pending(seq, None, data)
        pending.params = params
        self.pending[self.rig.score(seq, params, pending.meter)] = pending
        self.collect()

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.pending)))
        self.rig.scheduler.cancel(request)
        self.rig.scheduler.cancel(request)
        self.collect()

    # Steps

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.rig.step()
            self.collect()

    @precondition(lambda self: self.pending)
    @rule(
        after_writes=st.booleans(),
        model=st.sampled_from(["policy", "prm", "draft"]),
        error=st.sampled_from([ConnectionError, MemoryError]),
    )
    def failing_step(self, after_writes: bool, model: str, error: type[Exception]) -> None:
        runner = self.rig.runners[model]

        def fail(plan: ModelPlan) -> None:
            raise error("injected")

        if after_writes:
            runner.after_writes = fail
        else:
            runner.before_step = fail
        self.rig.step()
        runner.before_step = runner.after_writes = lambda plan: None
        self.collect()

    @precondition(lambda self: self.pending)
    @rule(model=st.sampled_from(["policy", "prm", "draft"]), place=st.sampled_from([0, -1]))
    def spoiled_step(self, model: str, place: int) -> None:
        """One row gives a value that is not finite."""
        runner, counters = self.rig.runners[model], self.rig.scheduler.counters
        runner.mangle = partial(spoil, place=place)
        failed = counters.failed_rows
        self.rig.step()
        self.spoiled_rows += counters.failed_rows - failed
        runner.mangle = lambda result: result
        self.collect()

    @rule()
    def finish_all(self) -> None:
        """Once meters no longer defer, everything ends: nothing is stuck, whatever holds the pool."""
        for pending in self.pending.values():
            pending.meter.verdicts.clear()
        for _ in range(3000):
            if not self.pending:
                return
            assert self.rig.step() is not None or not self.pending or self.rig.outcomes, "stuck"
            self.collect()
        raise AssertionError("not done")

    # What must hold

    @invariant()
    def bookkeeping(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.scheduler.check()
        for seq, tokens in self.tokens.items():
            if not self.busy(seq):
                assert self.rig.tokens(seq) == tokens
        usage, runners = self.usage, self.rig.runners.values()
        rows = usage.prefill_tokens + usage.decode_tokens + usage.score_tokens + usage.recomputed_tokens
        rows += usage.draft_tokens
        assert usage.accepted_tokens <= usage.draft_tokens
        assert rows + self.spoiled_rows == sum(runner.rows for runner in runners)
        counters = self.rig.scheduler.counters
        assert counters.scheduled_rows == counters.rows_by_kind()
        assert counters.drafted_rows == usage.draft_tokens
        assert counters.accepted_tokens == usage.accepted_tokens

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.finish_all()
        for seq in list(self.tokens):
            self.rig.scheduler.release(seq)
        self.rig.scheduler.check()
        for memory in self.rig.scheduler.memories.values():
            assert memory.pool.owned == 0
            assert memory.accounts() == ()
        assert self.usage.kv_tokens == self.usage.kv_unshared_tokens == 0

    # The model's side

    def fresh_seed(self) -> int:
        self.next_seed += 1
        return self.next_seed

    def remember(self, seq: SeqId, tokens: list[int], seed: int, model: str, parent: SeqId | None) -> None:
        self.tokens[seq], self.seeds[seq], self.models[seq] = list(tokens), seed, model
        self.paths[seq] = [object() for _ in tokens] if parent is None else list(self.paths[parent])
        self.prompts[seq] = len(tokens) if parent is None else self.prompts[parent]

    def busy(self, seq: SeqId) -> bool:
        return any(pending.seq == seq for pending in self.pending.values())

    def idle(self) -> list[SeqId]:
        return [seq for seq in sorted(getattr(self, "tokens", {})) if not self.busy(seq)]

    def new_pending(self, seq: SeqId, budget: int | None, data: st.DataObject) -> Pending:
        pending = self.pend(seq, budget)
        pending.meter.verdicts = data.draw(st.lists(st.sampled_from(VERDICTS), max_size=4))
        return pending

    def pend(self, seq: SeqId, budget: int | None) -> Pending:
        meter = PathMeter(budget, seq, self.paths[seq], self.charged)
        self.meters.append(meter)  # kept alive: identities of sampled positions name it
        return Pending(seq, meter, list(self.tokens[seq]), self.prompts[seq])

    def collect(self) -> None:
        self.rig.collect()
        for request in [request for request in self.pending if request in self.rig.outcomes]:
            pending, outcome = self.pending.pop(request), self.rig.outcomes[request]
            assert pending.meter.balance() == (0, 0, 0)
            if isinstance(pending.params, ExtendParams):
                self.check_extension(pending, outcome)
            else:
                check_scores(pending, outcome)

    def check_extension(self, pending: Pending, outcome: Outcome) -> None:
        params = pending.params
        assert isinstance(params, ExtendParams)
        tokens, logprobs, stop = NaiveEngine.extend(
            pending.before, self.seeds[pending.seq], params, MAX_LEN, pending.prompt_length
        )
        gained = self.rig.scheduler.family.sequences.get(pending.seq)
        added = list(gained.tokens[len(pending.before) :]) if gained is not None else []
        if pending.seq in self.tokens:
            self.tokens[pending.seq] = pending.before + added
            self.paths[pending.seq] = pending.meter.identities(len(pending.before) + len(added))
        if outcome.error is not None:
            assert isinstance(outcome.error, StepFailed)
            return
        value = outcome.value
        assert isinstance(value, Extension)
        if pending.seq in self.tokens:
            assert added == list(value.tokens)
        assert sum(work.tokens for work in pending.meter.committed) == value.generated
        if value.generated:
            assert pending.meter.paid(range(len(pending.before) + value.generated - 1))
        if value.stop in (Stop.BUDGET, Stop.CANCELLED):
            assert list(value.tokens) == uncut(pending, self.seeds[pending.seq], value.generated)
        else:
            assert (list(value.tokens), list(value.logprobs), value.stop) == (tokens, logprobs, stop)


EngineMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
TestEngineMachine = EngineMachine.TestCase


@pytest.mark.slow
def test_many_examples() -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        EngineMachine, settings=settings(max_examples=MANY_EXAMPLES, stateful_step_count=40)
    )
