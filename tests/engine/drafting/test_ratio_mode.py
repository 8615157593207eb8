"""Drafts under the ratio test: the target's distribution, one text per seed under any load, and honest
counts."""

import math
from collections import Counter
from itertools import product

import msgspec
import pytest
from branchwise.engine.drafting.params import DraftModel, Ngram, Speculate, Suffix
from branchwise.engine.protocol import EngineUsage, ModelCost, SeqId, Verdict
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import ModelPlan, ModelResult
from branchwise.engine.sched.scheduler import StepLimits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.checks import RecordingMeter, Rig, extend_params
from support.drafters import SkewedRunner
from support.oracle import NaiveEngine, Row, oracle_info, probabilities

PROMPT = [7] * 9
PAYS = StepLimits(verify_fixed_rows=1000.0)
FEW = SamplingParams(allowed_tokens=(3, 4))
"""Two tokens alone repeat themselves: every drafter proposes."""

METHODS: list[Speculate] = [
    Ngram(k=4, verify="ratio"),
    Suffix(k=4, verify="ratio"),
    DraftModel(k=3, verify="ratio"),
]
NAMES = ["ngram", "suffix", "draft"]


def make(limits: StepLimits = PAYS, *, blocks: int = 64, skew: float = 1.5, check: bool = True) -> Rig:
    """A policy, and a draft model that is another one and costs next to nothing."""
    draft = msgspec.structs.replace(oracle_info("draft"), cost=ModelCost(1, 1, 1, 1, 1))
    rig = Rig(blocks, infos=[oracle_info("policy"), draft], limits=limits, check=check)
    runner = SkewedRunner(blocks, 4)
    runner.skew = skew
    rig.runners["draft"] = runner
    return rig


def written(method: Speculate, seed: int, want: int, sampling: SamplingParams = FEW) -> list[int]:
    """Alone, with all the room there is."""
    rig = make(check=False)
    seq = rig.open(PROMPT, seed=seed)
    params = extend_params(want, sampling=sampling, speculate=method)
    return list(rig.extend_now(seq, params).tokens)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.pins("vllm#9441", "vllm#6038")
def test_texts_follow_the_targets_distribution(method: Speculate) -> None:
    """Chi-square over all texts of four tokens; the second to fourth of them are tested against drafts."""
    texts, sampling, length = 1200, SamplingParams(allowed_tokens=(3, 4), temperature=0.7), 4
    prompt = [3, 4, 3, 3, 4, 3, 4, 4, 3]
    expected: dict[tuple[int, ...], float] = {}
    for text in product((3, 4), repeat=length):
        chance = 1.0
        for place, token in enumerate(text):
            before = [*prompt, *text[:place]]
            row = Row(before)
            chance *= probabilities(row.target(sampling, len(prompt), ()), sampling)[token]
        expected[text] = chance * texts
    rig, usage = make(check=False), EngineUsage()
    params = extend_params(length, sampling=sampling, speculate=method)
    root = rig.open(prompt, seed=0, usage=usage)
    requests = []
    for first in range(0, texts, 50):
        children = rig.fork(root, range(1000 + first, 1050 + first))
        requests += [rig.extend(child, params) for child in children]
        rig.run()
        for child in children:
            rig.scheduler.release(child)
    counts = Counter(tuple(rig.extension(request).tokens) for request in requests)
    assert usage.draft_tokens > usage.accepted_tokens > 100
    keys = list(expected)
    found = stats.chisquare([counts[key] for key in keys], [expected[key] for key in keys])
    assert found.pvalue > 1e-3


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_rerun_the_text_is_the_same_and_with_another_seed_another(method: Speculate) -> None:
    texts = [written(method, seed, 24) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.pins("vllm#16832")
@settings(max_examples=12)
@given(
    blocks=st.integers(10, 40),
    rows=st.integers(1, 30),
    chunk=st.integers(1, 9),
    wants=st.lists(st.integers(1, 16), min_size=1, max_size=5),
    data=st.data(),
)
def test_neither_room_nor_company_changes_a_text(
    method: Speculate, blocks: int, rows: int, chunk: int, wants: list[int], data: st.DataObject
) -> None:
    """Steps with room for all of a draft, for a part of it or for none; preemption; meters that defer."""
    limits = StepLimits(max_rows=rows, max_chunk_rows=chunk, verify_fixed_rows=1000.0)
    rig = make(limits, blocks=blocks)
    root = rig.open(PROMPT, seed=1)
    seeds = range(100, 100 + len(wants))
    requests = []
    for child, want in zip(rig.fork(root, seeds), wants, strict=True):
        meter = RecordingMeter()
        meter.verdicts = data.draw(
            st.lists(st.sampled_from([Verdict.GRANTED, Verdict.DEFER, Verdict.YIELD]), max_size=6)
        )
        params = extend_params(want, sampling=FEW, order=(child,), speculate=method)
        requests.append(rig.extend(child, params, meter))
    rig.run()
    for request, seed, want in zip(requests, seeds, wants, strict=True):
        assert list(rig.extension(request).tokens) == written(method, seed, want)


def test_a_text_does_not_depend_on_how_many_of_its_rows_fit_a_step() -> None:
    for method in METHODS:
        alone = written(method, 3, 30)
        for rows in (1, 2, 3):
            rig = make(StepLimits(verify_fixed_rows=1000.0, max_rows=rows))
            found = rig.extend_now(
                rig.open(PROMPT, seed=3), extend_params(30, sampling=FEW, speculate=method)
            )
            assert list(found.tokens) == alone


def test_what_siblings_write_changes_no_text() -> None:
    method = Suffix(k=4, verify="ratio")
    rig = make()
    children = rig.fork(rig.open(PROMPT, seed=0), [1, 2, 3])
    requests = [rig.extend(child, extend_params(20, sampling=FEW, speculate=method)) for child in children]
    rig.run()
    assert [list(rig.extension(request).tokens) for request in requests] == [
        written(method, seed, 20) for seed in (1, 2, 3)
    ]


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_greedy_texts_are_those_without_drafts(method: Speculate) -> None:
    greedy = SamplingParams(temperature=0.0, allowed_tokens=(3, 4))
    expected = NaiveEngine.extend(PROMPT, 1, extend_params(30, sampling=greedy), 4096)[0]
    assert written(method, 1, 30, greedy) == expected


@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_drafted_accepted_and_wasted_are_counted(skew: float) -> None:
    rig, usage = make(skew=skew), EngineUsage()
    seq = rig.open(PROMPT, seed=5, usage=usage)
    rig.extend_now(seq, extend_params(40, speculate=DraftModel(k=3, verify="ratio")))
    counters = rig.scheduler.counters
    assert counters.drafted_rows == usage.draft_tokens > 0
    assert counters.accepted_tokens == usage.accepted_tokens
    assert counters.wasted_rows == usage.draft_tokens - usage.accepted_tokens
    assert (counters.wasted_rows == 0) == (skew == 0.0)
    assert counters.scheduled_rows == counters.rows_by_kind() == sum(r.rows for r in rig.runners.values())


def test_equal_models_accept_everything_with_noise_apart() -> None:
    rig, usage = make(skew=0.0), EngineUsage()
    seq = rig.open(PROMPT, seed=5, usage=usage)
    rig.extend_now(seq, extend_params(1 + 4 * 4, speculate=DraftModel(k=3, verify="ratio")))
    assert rig.runners["policy"].steps == 1 + 4
    assert usage.draft_tokens == usage.accepted_tokens == 12


def test_acceptance_is_one_minus_the_distance_of_the_two_models() -> None:
    """The mean over the tested positions."""
    accepted, expected, tested = 0, 0.0, 0
    for seed in range(60):
        rig = make(check=False)
        seq = rig.open(PROMPT, seed=seed)
        request = rig.extend(seq, extend_params(16, sampling=FEW, speculate=DraftModel(k=1, verify="ratio")))
        before = -1
        while request not in rig.outcomes:
            plan = rig.step()
            assert plan is not None
            for part in plan.models:
                for sample in (s for span in part.spans for s in span.samples if s.proposal is not None):
                    proposal = sample.proposal
                    assert proposal is not None
                    assert isinstance(proposal.q, list)
                    tokens = rig.tokens(seq)
                    row = Row(tokens[: sample.position])
                    p = probabilities(row.target(FEW, 9, ()), FEW)
                    expected += sum(min(a, b) for a, b in zip(p, proposal.q, strict=True))
                    tested += 1
                    accepted += tokens[sample.position] == proposal.token
                    assert sample.position > before
                    before = sample.position
    assert tested > 200
    assert accepted / tested == pytest.approx(expected / tested, abs=4 * (0.25 / tested) ** 0.5)


def test_penalties_hold_on_both_sides_and_the_context_is_the_drafts() -> None:
    """The oracle runner checks the counts of every row against the prefix that stands in its KV."""
    penalised = SamplingParams(
        repetition_penalty=1.7, presence_penalty=0.5, frequency_penalty=0.9, min_tokens=6, logit_bias={5: 3.0}
    )
    for method in METHODS:
        rig, usage = make(), EngineUsage()
        seq = rig.open(PROMPT, seed=5, usage=usage)
        params = extend_params(30, sampling=penalised, eos_ids=frozenset({3, 11}), speculate=method)
        rig.extend_now(seq, params)
        if isinstance(method, DraftModel):
            assert usage.draft_tokens > 0


@pytest.mark.parametrize("node", range(4))
def test_a_row_that_is_not_finite_does_not_change_the_text(node: int) -> None:
    method = DraftModel(k=3, verify="ratio")
    rig = make()
    seq = rig.open(PROMPT, seed=5)
    request = rig.extend(seq, extend_params(30, sampling=FEW, speculate=method))
    spoiled = 0

    def spoil(result: ModelResult) -> ModelResult:
        nonlocal spoiled
        hit = [d for d in result.drawn if d.node == node and any(e.node for e in result.drawn)]
        spoiled += len(hit)
        drawn = [msgspec.structs.replace(d, logprob=math.nan) if d in hit else d for d in result.drawn]
        return msgspec.structs.replace(result, drawn=tuple(drawn))

    rig.runners["policy"].mangle = spoil
    rig.run(request)
    assert spoiled > 0
    assert list(rig.extension(request).tokens) == written(method, 5, 30)


def test_a_failing_draft_model_fails_nobody() -> None:
    rig = make()

    def fail(plan: ModelPlan) -> None:
        raise ConnectionError("injected")

    rig.runners["draft"].before_step = fail
    seq = rig.open(PROMPT, seed=5)
    found = rig.extend_now(seq, extend_params(12, speculate=DraftModel(k=3, verify="ratio")))
    assert list(found.tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(12), 4096)[0]


def test_a_cut_sequence_forgets_its_draft() -> None:
    rig = make()
    seq = rig.open(PROMPT, seed=5)
    params = extend_params(10, sampling=FEW, speculate=DraftModel(k=3, verify="ratio"))
    rig.extend_now(seq, params)
    rig.scheduler.truncate(seq, 12)
    rig.scheduler.append(seq, [3, 4, 4])
    rig.extend_now(seq, params)
    assert len(rig.tokens(seq)) == 12 + 3 + 10
    rig.scheduler.release(SeqId(seq))
    assert all(memory.pool.owned == 0 for memory in rig.scheduler.memories.values())
