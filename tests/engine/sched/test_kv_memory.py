"""What the KV memory costs: hardly more than the unique tokens, and nothing after the last branch is gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from branchwise.engine.drafting.params import DraftModel, Ngram, Suffix
from branchwise.engine.errors import CapacityError
from branchwise.engine.protocol import EngineUsage, ScoreParams, SeqId, Verdict
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.sched.scheduler import StepLimits
from support.checks import RecordingMeter, Rig, extend_params
from support.drafters import ErringRunner, RandomDrafter, steer
from support.machine import PROMPTS, SAMPLING, spoil
from support.oracle import oracle_info, prefix_digest

BLOCK = 4


class Watched:
    """Steps a rig and holds the blocks in use against what the live branches need."""

    def __init__(self, **limits: int) -> None:
        self.rig = Rig(4000, BLOCK, limits=StepLimits(**limits), check=False)
        self.peak = self.allowed_at_peak = 0.0

    def run(self, requests: list[int]) -> None:
        while not all(request in self.rig.outcomes for request in requests):
            plan = self.rig.scheduler.plan()
            assert plan is not None
            self.look()  # the blocks that the step will write are taken by now
            self.rig.finish(plan)
            self.look()

    def look(self) -> None:
        """At no moment more than the different contents of blocks, and one per branch."""
        branches = [seq for seq in self.rig.scheduler.family.sequences.values() if not seq.hidden]
        tokens, contents = set[bytes](), set[bytes]()
        for seq in branches:
            digests = [prefix_digest(seq.tokens[: end + 1]) for end in range(seq.known)]
            tokens.update(digests)
            contents.update(digests[BLOCK - 1 :: BLOCK], digests[-1:])
        owned = self.rig.pool.owned
        assert owned <= 1.05 * len(contents) + len(branches), (owned, len(contents), len(branches))
        if owned > self.peak:
            self.peak = owned
            self.allowed_at_peak = 1.05 * -(-len(tokens) // BLOCK) + len(branches)

    def check_peak(self) -> None:
        assert 0.75 * self.allowed_at_peak < self.peak <= self.allowed_at_peak


@pytest.mark.parametrize("length", [40, 42])
@pytest.mark.parametrize("keep_root", [True, False])
def test_best_of_n_holds_its_unique_tokens_and_one_block_per_branch(length: int, keep_root: bool) -> None:
    watched = Watched(max_rows=64)
    rig = watched.rig
    root = rig.open([position % 47 + 1 for position in range(length)])
    children = rig.fork(root, range(24))
    if not keep_root:
        rig.scheduler.release(root)
    watched.run([rig.extend(child, extend_params(14 + child % 9)) for child in children])
    watched.check_peak()
    for child in children:
        rig.scheduler.release(child)
    rig.scheduler.release(root)
    assert rig.pool.owned == 0


@pytest.mark.parametrize("max_rows", [5, 256])
def test_a_tree_holds_its_unique_tokens_and_one_block_per_branch(max_rows: int) -> None:
    """Beam search: 4 beams of 4 children, the best 4 of 16 live on, for 6 steps of 7 tokens."""
    watched = Watched(max_rows=max_rows)
    rig, chance = watched.rig, random.Random(1)
    beams = [rig.open([position % 47 + 1 for position in range(33)])]
    for _ in range(6):
        children = [child for beam in beams for child in rig.fork(beam, chance.sample(range(9999), 4))]
        for beam in beams:
            rig.scheduler.release(beam)
        watched.run([rig.extend(child, extend_params(7)) for child in children])
        beams = chance.sample(children, min(4, len(children)))
        for child in set(children) - set(beams):
            rig.scheduler.release(child, pruned=True)
    watched.check_peak()
    for beam in beams:
        rig.scheduler.release(beam)
    assert rig.pool.owned == 0


class Chaos:
    """Random verbs and faults on two models and a draft model, on a pool so small that everything happens.
    The invariant checker runs after every step; `tally` counts what was done.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        infos = [
            oracle_info("policy", max_model_len=40),
            oracle_info("prm", max_model_len=40, head="reward"),
            oracle_info("draft", max_model_len=36),
        ]
        limits = StepLimits(max_rows=24, max_chunk_rows=9, max_kept_rows=2, verify_fixed_rows=1000.0)
        self.rig = Rig(24, BLOCK, limits=limits, infos=infos)
        self.rig.runners["draft"] = ErringRunner(24, BLOCK)
        steer(self.rig.scheduler.speculation, RandomDrafter(self.chance))
        self.usage = EngineUsage()
        self.live: dict[SeqId, str] = {}
        self.pinned: list[SeqId] = []
        self.pending: dict[int, SeqId] = {}
        self.meters: list[RecordingMeter] = []
        self.tally: dict[str, int] = {}
        self.now = 0.0

    def run(self, operations: int) -> None:
        verbs: list[Callable[[], bool]] = [
            *[self.step] * 30,
            *[self.extend] * 4,
            *[self.open] * 2,
            self.fork,
            self.append,
            self.truncate,
            self.score,
            *[self.prune] * 2,
            self.cancel,
            self.preempt,
            self.park,
            self.pin,
            self.unpin,
            self.fail,
            self.spoil,
        ]
        done = 0
        while done < operations:
            verb = self.chance.choice(verbs)
            if verb():
                done += 1
                self.tally[verb.__name__] = self.tally.get(verb.__name__, 0) + 1
                self.settle()

    def end(self) -> None:
        for meter in self.meters:
            meter.verdicts.clear()
        self.rig.run()
        for seq in list(self.live):
            self.rig.scheduler.release(seq)
        for seq in self.pinned:
            self.rig.scheduler.unpin(seq)
        self.rig.scheduler.check()

    # Verbs; false where there was nothing to do it to

    def open(self) -> bool:
        if len(self.live) >= 14:
            return False
        model = self.chance.choice(["policy", "policy", "prm"])
        seq = self.rig.open(
            self.chance.choice(PROMPTS),
            seed=self.chance.getrandbits(40),
            model=model,
            namespace=self.chance.choice("ab"),
            usage=self.usage,
        )
        self.live[seq] = model
        return True

    def fork(self) -> bool:
        if (seq := self.idle()) is None or len(self.live) > 20:
            return False
        seeds = [self.chance.getrandbits(40) for _ in range(self.chance.randint(1, 4))]
        self.live.update(dict.fromkeys(self.rig.fork(seq, seeds), self.live[seq]))
        return True

    def extend(self) -> bool:
        if (seq := self.idle("policy")) is None:
            return False
        params = extend_params(
            self.chance.randint(1, 12),
            sampling=self.chance.choice(SAMPLING),
            speculate=self.chance.choice([None, Ngram(k=3), Suffix(k=6), DraftModel(k=3)]),
            order=(self.chance.randint(0, 2),),
        )
        self.pending[self.rig.extend(seq, params, self.meter())] = seq
        return True

    def append(self) -> bool:
        if (seq := self.idle()) is None:
            return False
        room = 40 - len(self.rig.tokens(seq))
        self.rig.scheduler.append(seq, [self.chance.randint(1, 9) for _ in range(min(room, 3))])
        return True

    def truncate(self) -> bool:
        if (seq := self.idle()) is None:
            return False
        self.rig.scheduler.truncate(seq, self.chance.randint(1, len(self.rig.tokens(seq))))
        return True

    def score(self) -> bool:
        if (seq := self.idle()) is None:
            return False
        at = self.chance.randint(1, len(self.rig.tokens(seq)))
        params = (
            ScoreParams(logprobs_from=at) if self.live[seq] == "policy" else ScoreParams(reward_at=(at - 1,))
        )
        self.pending[self.rig.score(seq, params, self.meter())] = seq
        return True

    def prune(self) -> bool:
        if not self.live:
            return False
        seq = self.chance.choice(list(self.live))
        self.rig.scheduler.release(seq, pruned=self.chance.random() < 0.7)
        del self.live[seq]
        return True

    def cancel(self) -> bool:
        if not self.pending:
            return False
        self.rig.scheduler.cancel(self.chance.choice(list(self.pending)))
        return True

    def preempt(self) -> bool:
        memory = self.chance.choice(list(self.rig.scheduler.memories.values()))
        return self.rig.scheduler.relief.preempt_one(memory, (), 0, fresh=True) is not None

    def park(self) -> bool:
        if (seq := self.idle()) is None:
            return False
        self.rig.scheduler.park(seq)
        return True

    def pin(self) -> bool:
        if (seq := self.idle()) is None:
            return False
        request = self.rig.new_id()
        self.rig.scheduler.pin(request, seq, self.now + self.chance.randint(1, 90))
        self.rig.collect()
        assert isinstance(self.rig.outcomes[request].error, CapacityError | None)
        self.pinned.append(seq)
        return True

    def unpin(self) -> bool:
        if not self.pinned:
            return False
        self.rig.scheduler.unpin(self.pinned.pop(self.chance.randrange(len(self.pinned))))
        return True

    def step(self) -> bool:
        self.now += 1.0
        self.rig.scheduler.expire_pins(self.now)
        return self.rig.step() is not None

    def fail(self) -> bool:
        """A step that raises, before or after its rows are written."""
        runner = self.rig.runners[self.chance.choice(["policy", "prm", "draft"])]
        error = self.chance.choice([ConnectionError, MemoryError])

        def raise_it(plan: ModelPlan) -> None:
            raise error("injected")

        hook = self.chance.choice(["before_step", "after_writes"])
        setattr(runner, hook, raise_it)
        stepped = self.step()
        setattr(runner, hook, lambda plan: None)
        return stepped

    def spoil(self) -> bool:
        """A step with a value that is not finite."""
        runner = self.rig.runners[self.chance.choice(["policy", "prm", "draft"])]
        runner.mangle = partial(spoil, place=self.chance.choice([0, -1]))
        stepped = self.step()
        runner.mangle = lambda result: result
        return stepped

    def idle(self, model: str | None = None) -> SeqId | None:
        busy = set(self.pending.values())
        found = [seq for seq, name in self.live.items() if seq not in busy and model in (None, name)]
        return self.chance.choice(found) if found else None

    def meter(self) -> RecordingMeter:
        meter = RecordingMeter(self.chance.choice([None, None, 4]))
        meter.verdicts = self.chance.choices([Verdict.GRANTED, Verdict.DEFER, Verdict.YIELD], (8, 1, 1), k=4)
        self.meters.append(meter)
        return meter

    def settle(self) -> None:
        self.rig.collect()
        for request in [request for request in self.pending if request in self.rig.outcomes]:
            del self.pending[request]


def check_chaos(seed: int, operations: int) -> None:
    chaos = Chaos(seed)
    chaos.run(operations)
    assert len(chaos.tally) == 15, chaos.tally
    counters = chaos.rig.scheduler.counters
    assert min(counters.preemptions, counters.parked, counters.drafted_rows, counters.failed_steps) > 0
    chaos.end()
    for memory in chaos.rig.scheduler.memories.values():
        pool = memory.pool
        assert (pool.owned, pool.pinned_cached) == (0, 0)
        assert pool.free + pool.cached == pool.total
        assert memory.accounts() == ()
    assert chaos.rig.scheduler.family.sequences == {}
    assert chaos.usage.kv_tokens == chaos.usage.kv_unshared_tokens == 0
    assert all(meter.balance() == (0, 0, 0) for meter in chaos.meters)


def test_nothing_is_leaked_after_1000_random_operations() -> None:
    check_chaos(1, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_nothing_is_leaked_after_10000_random_operations(seed: int) -> None:
    check_chaos(seed, 10_000)
