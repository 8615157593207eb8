"""Drafts change how many steps a text takes and nothing else: not a token, not a charge, not a block."""

import math
import random
from collections.abc import Callable, Collection

import msgspec
import pytest
from branchwise.engine.drafting.params import Ngram
from branchwise.engine.errors import NumericsError
from branchwise.engine.protocol import EngineUsage, SeqId, Verdict
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import ModelPlan, ModelResult
from branchwise.engine.sched.scheduler import StepLimits
from branchwise.engine.text.stop import Stop
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks import RecordingMeter, Rig, extend_params
from support.drafters import RandomDrafter, SteeredDrafter, steer
from support.oracle import NaiveEngine

PROMPT = [7] * 9
PAYS = StepLimits(verify_fixed_rows=1000.0)
K = 6


def steered(right: int, **options: object) -> Rig:
    """A rig whose drafts have their first `right` tokens right."""
    rig = Rig(limits=PAYS, **options)  # pyright: ignore[reportArgumentType]
    steer(rig.scheduler.speculation, SteeredDrafter(lambda k: min(right, k)))
    return rig


def kv(rig: Rig, seq: SeqId) -> list[tuple[int, int] | None]:
    """(token, position) in each slot of the committed positions of `seq`."""
    sequence, size = rig.scheduler.family.sequences[seq], rig.runner.block_size
    blocks = sequence.table.blocks
    return [rig.runner.slots[blocks[p // size] * size + p % size] for p in range(sequence.computed)]


@pytest.mark.parametrize("right", range(K + 1))
@pytest.mark.parametrize("length", [9, 10, 11, 12])
@pytest.mark.pins("openvino.genai#4190", "mlxcel#994", "vllm#56734")
def test_after_every_rejection_the_kv_is_that_of_a_fresh_prefill(right: int, length: int) -> None:
    rig = steered(right)
    prompt = [7] * length
    seq = rig.open(prompt, seed=5)
    request = rig.extend(seq, extend_params(30, speculate=Ngram(k=K)))
    while request not in rig.outcomes:
        rig.step()
        sequence = rig.scheduler.family.sequences[seq]
        assert kv(rig, seq) == [(token, p) for p, token in enumerate(sequence.tokens[: sequence.computed])]
        assert len(sequence.table) == -(-sequence.computed // rig.runner.block_size)
    assert list(rig.extension(request).tokens) == NaiveEngine.extend(prompt, 5, extend_params(30), 4096)[0]


def test_a_right_draft_of_k_gains_k_and_one_tokens_per_step() -> None:
    rig, usage = steered(K), EngineUsage()
    seq = rig.open(PROMPT, seed=5, usage=usage)
    rig.extend_now(seq, extend_params(1 + 4 * (K + 1), speculate=Ngram(k=K)))
    assert rig.runner.steps == 1 + 4
    assert (usage.draft_tokens, usage.accepted_tokens) == (4 * K, 4 * K)


def test_computed_flops_count_drafts_and_charges_do_not() -> None:
    meters, usages = [], []
    for speculate in (None, Ngram(k=K)):
        rig, meter, usage = steered(3), RecordingMeter(), EngineUsage()
        seq = rig.open(PROMPT, seed=5, usage=usage)
        rig.extend_now(seq, extend_params(20, speculate=speculate), meter)
        meters.append(meter)
        usages.append(usage)
    plain, drafted = meters
    assert plain.granted == drafted.granted
    assert plain.committed == drafted.committed
    assert usages[0].computed_flops < usages[1].computed_flops
    assert usages[1].draft_tokens > usages[1].accepted_tokens > 0


@pytest.mark.pins("vllm#6038", "vllm#9441", "vllm#7627", "vllm#41758", "vllm#16832", "llama.cpp#27972")
@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    blocks=st.integers(9, 60),
    rows=st.integers(1, 30),
    chunk=st.integers(1, 9),
    temperature=st.sampled_from([0.0, 1.0]),
    eos=st.frozensets(st.integers(0, 49), max_size=3),
    strings=st.sampled_from([(), ("3",), ("17 4", "8")]),
    wants=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    budget=st.none() | st.integers(0, 40),
)
def test_no_drafter_ever_changes_the_output(
    seed: int,
    blocks: int,
    rows: int,
    chunk: int,
    temperature: float,
    eos: frozenset[int],
    strings: tuple[str, ...],
    wants: list[int],
    budget: int | None,
) -> None:
    limits = StepLimits(max_rows=rows, max_chunk_rows=chunk, verify_fixed_rows=1000.0)
    rig = Rig(num_blocks=blocks, max_model_len=32, limits=limits)
    steer(rig.scheduler.speculation, RandomDrafter(random.Random(seed)))
    root = rig.open(PROMPT, seed=seed)
    meters = [RecordingMeter(budget) for _ in wants]
    requests = []
    for child, want, meter in zip(rig.fork(root, range(100, 100 + len(wants))), wants, meters, strict=True):
        params = extend_params(
            want, temperature=temperature, eos_ids=eos, strings=strings, speculate=Ngram(k=K)
        )
        requests.append((rig.extend(child, params, meter), params))
    rig.run()
    for (request, params), child_seed, meter in zip(requests, range(100, 106), meters, strict=False):
        found = rig.extension(request)
        tokens, logprobs, stop = NaiveEngine.extend(PROMPT, child_seed, params, 32)
        assert meter.balance() == (0, 0, 0)
        assert sum(work.tokens for work in meter.committed) == found.generated
        if found.stop is Stop.BUDGET:
            assert found.generated == budget
        else:
            assert (list(found.tokens), list(found.logprobs), found.stop) == (tokens, logprobs, stop)


@pytest.mark.parametrize("verdict", [Verdict.DEFER, Verdict.YIELD])
def test_an_accepted_run_is_cut_where_the_meter_does_not_grant(verdict: Verdict) -> None:
    rig, meter = steered(K), RecordingMeter()
    seq = rig.open(PROMPT, seed=5)
    request = rig.extend(seq, extend_params(20, speculate=Ngram(k=K)), meter)
    rig.step()
    meter.verdicts = [Verdict.GRANTED, Verdict.GRANTED, verdict]
    rig.step()
    assert len(rig.tokens(seq)) == len(PROMPT) + 1 + 2
    rig.run(request)
    assert list(rig.extension(request).tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(20), 4096)[0]


def test_nothing_more_is_granted_once_a_sibling_has_ended() -> None:
    """What its search decides when it hears of that comes first."""
    rig = steered(K)
    root = rig.open(PROMPT, seed=5)
    first, second = rig.fork(root, [1, 2])
    short = rig.extend(first, extend_params(2, order=(0,)))
    rig.extend(second, extend_params(20, order=(1,), speculate=Ngram(k=K)))
    rig.step()
    rig.step()
    assert short in rig.outcomes
    assert len(rig.tokens(second)) == len(PROMPT) + 2


def test_siblings_take_their_accepted_tokens_in_turn() -> None:
    """A meter that lets nobody run ahead of the others sees them advance together."""
    rig = steered(K)
    root = rig.open(PROMPT, seed=5)
    asked: list[int] = []

    class Turns(RecordingMeter):
        def __init__(self, who: int) -> None:
            super().__init__()
            self.who = who

        def grant(self, work):  # type: ignore[no-untyped-def]
            asked.append(self.who)
            return super().grant(work)

    for index, child in enumerate(rig.fork(root, [1, 2, 3])):
        rig.extend(child, extend_params(20, order=(index,), speculate=Ngram(k=K)), Turns(index))
    rig.step()
    rig.step()
    assert asked[3:] == [0, 1, 2] * (K + 1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_changes_rows_is_speculated_on_too(temperature: float) -> None:
    """Penalties count the draft's tokens before each row; biases and held back ends are of the position. The
    oracle checks the counts of every row."""
    sampling = SamplingParams(
        temperature=temperature,
        repetition_penalty=1.4,
        presence_penalty=0.5,
        frequency_penalty=0.9,
        logit_bias={5: 3.0, 17: -1.5},
        min_tokens=12,
    )
    params = extend_params(1 + 3 * (K + 1), sampling=sampling, eos_ids=frozenset({3, 11, 5}))
    rig, usage = steered(K), EngineUsage()
    seq = rig.open(PROMPT, seed=5, usage=usage)
    found = rig.extend_now(seq, msgspec.structs.replace(params, speculate=Ngram(k=K)))
    expected = NaiveEngine.extend(PROMPT, 5, params, 4096)
    assert (list(found.tokens), list(found.logprobs), found.stop) == expected
    assert usage.accepted_tokens > 8


def test_drafts_take_free_blocks_only_and_never_evict() -> None:
    rig = steered(K, num_blocks=8)
    other = rig.open([3] * 12, seed=1)
    rig.extend_now(other, extend_params(1))
    rig.scheduler.release(other)
    cached = rig.pool.cached
    assert cached == 3
    seq = rig.open(PROMPT, seed=5)
    request = rig.extend(seq, extend_params(7, speculate=Ngram(k=K)))
    while request not in rig.outcomes:
        rig.step()
        assert rig.pool.cached >= cached
    assert rig.pool.evictions == 0


def test_a_failed_step_gives_the_blocks_of_its_drafts_back() -> None:
    rig = steered(K)
    seq = rig.open(PROMPT, seed=5)
    request = rig.extend(seq, extend_params(20, speculate=Ngram(k=K)))
    rig.step()

    def fail(plan: ModelPlan) -> None:
        assert len(plan.spans[0].tokens) == 1 + K
        raise ConnectionError("injected")

    rig.runner.before_step = fail
    rig.step()
    assert rig.outcomes[request].error is not None
    rig.scheduler.release(seq)
    assert rig.pool.owned == 0


@pytest.mark.pins("Arctic#151")
def test_drafts_stop_at_the_context_and_at_max_tokens() -> None:
    rig = steered(K, max_model_len=20)
    seq = rig.open(PROMPT, seed=5)
    found = rig.extend_now(seq, extend_params(50, speculate=Ngram(k=K)))
    assert (found.stop, len(rig.tokens(seq))) == (Stop.CONTEXT, 20)
    rig = steered(K)
    seq = rig.open(PROMPT, seed=5)
    found = rig.extend_now(seq, extend_params(5, speculate=Ngram(k=K)))
    assert (found.stop, len(found.tokens), rig.runner.steps) == (Stop.LENGTH, 5, 2)


def spoiled(bad: SeqId, nodes: Collection[int]) -> Callable[[ModelResult], ModelResult]:
    """The rows `nodes` of the draft of `bad` give no finite value."""

    def mangle(result: ModelResult) -> ModelResult:
        drawn = [
            msgspec.structs.replace(d, logprob=math.nan) if d.seq == bad and d.node in nodes else d
            for d in result.drawn
        ]
        return msgspec.structs.replace(result, drawn=tuple(drawn))

    return mangle


@pytest.mark.parametrize("node", range(K + 1))
@pytest.mark.parametrize("right", [0, 2, K])
def test_a_row_of_a_draft_that_is_not_finite_ends_the_run_before_it_and_nothing_else(
    node: int, right: int
) -> None:
    """Whose doing it is shows in the next step, which computes the row without a draft."""
    rig = steered(right)
    seq = rig.open(PROMPT, seed=5)
    request = rig.extend(seq, extend_params(30, speculate=Ngram(k=K)))
    rig.step()
    rig.runner.mangle = spoiled(seq, [node])
    rig.step()
    rig.runner.mangle = lambda result: result
    reached = node <= right
    gained = 0 if node == 0 else 1 + min(right, node - 1)
    assert len(rig.tokens(seq)) == len(PROMPT) + 1 + gained
    assert kv(rig, seq) == [(token, p) for p, token in enumerate(rig.tokens(seq)[:-1])]
    counters = rig.scheduler.counters
    assert counters.failed_rows == (K + 1 if node == 0 else 0)
    plan = rig.step()
    assert plan is not None
    assert len(plan.models[0].spans[0].tokens) == (1 if reached else 1 + K)
    rig.run(request)
    assert counters.scheduled_rows == counters.rows_by_kind() == rig.runner.rows
    assert list(rig.extension(request).tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(30), 4096)[0]


def test_a_row_that_is_not_finite_without_a_draft_either_ends_its_request() -> None:
    rig = steered(K)
    good, bad = rig.open(PROMPT, seed=5), rig.open([3] * 9, seed=6)
    requests = [rig.extend(seq, extend_params(30, speculate=Ngram(k=K))) for seq in (good, bad)]
    rig.step()
    rig.runner.mangle = spoiled(bad, [0, 3])
    rig.step()
    assert requests[1] not in rig.outcomes
    rig.step()
    assert isinstance(rig.outcomes[requests[1]].error, NumericsError)
    assert rig.scheduler.counters.failed_rows == 1 + K + 1
    rig.run(requests[0])
    assert (
        list(rig.extension(requests[0]).tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(30), 4096)[0]
    )
    for seq in (good, bad):
        rig.scheduler.release(seq)
    assert rig.pool.owned == 0


def test_drafts_give_way_where_memory_ran_out() -> None:
    def fail(plan: ModelPlan) -> None:
        raise MemoryError

    rig = steered(K)
    seq = rig.open(PROMPT, seed=5)
    request = rig.extend(seq, extend_params(30, speculate=Ngram(k=K)))
    rig.step()
    rig.runner.before_step = fail
    rig.step()
    rig.runner.before_step = lambda plan: None
    counters = rig.scheduler.counters
    assert (counters.retried_steps, counters.failed_rows) == (1, 1 + K)
    rig.run(request)
    assert rig.runner.steps == 1 + 29
    assert list(rig.extension(request).tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(30), 4096)[0]
    assert counters.scheduled_rows == counters.rows_by_kind()
    rig.scheduler.release(seq)
    assert rig.pool.owned == 0


def test_drafts_take_what_the_tenants_leave_of_a_step() -> None:
    rig = Rig(limits=StepLimits(verify_fixed_rows=1000.0, max_rows=8))
    steer(rig.scheduler.speculation, SteeredDrafter(lambda k: k))
    guessing = rig.extend(rig.open([5], tenant="a"), extend_params(40, speculate=Ngram(k=K)))
    rig.step()
    prompt = rig.extend(rig.open([9] * 21, tenant="b"), extend_params(1))
    for _ in range(3):
        plan = rig.step()
        assert plan is not None
        assert sorted(len(span.tokens) for span in plan.models[0].spans) == [1, 7]
    rig.run(prompt, guessing)
    assert rig.scheduler.counters.accepted_tokens > 0
