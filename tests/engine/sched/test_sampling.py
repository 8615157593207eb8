"""Sampling rules on the scheduler: counts and details are the sequence's own, whatever shares its rows."""

from __future__ import annotations

import pytest
from branchwise.engine.errors import SamplingError
from branchwise.engine.protocol import Extension, SeqId
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.scheduler import StepLimits
from branchwise.engine.text.stop import Stop
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks import RecordingMeter, Rig, extend_params
from support.oracle import EOS, NaiveEngine, Row
from support.sampling import token_detail

PENALISED = SamplingParams(repetition_penalty=1.6, presence_penalty=0.4, frequency_penalty=0.8)
PROMPT = [7, 7, 3, 9, 9, 9, 21, 4, 4, 30]


def _naive(
    tokens: list[int], seed: int, count: int, prompt_length: int, sampling: SamplingParams = PENALISED
) -> list[int]:
    return NaiveEngine.extend(tokens, seed, extend_params(count, sampling=sampling), 99, prompt_length)[0]


@pytest.mark.pins("vllm#17524", "vllm#51226")
@settings(max_examples=40)
@given(
    seeds=st.lists(st.integers(0, 2**63), min_size=1, max_size=6, unique=True),
    rows=st.sampled_from([1, 3, 64]),
    chunk=st.sampled_from([1, 4, 64]),
    blocks=st.sampled_from([10, 14, 64]),
    kept=st.sampled_from([0, 64]),
    forked=st.booleans(),
)
def test_penalised_tokens_are_the_same_in_any_batch_order_chunk_and_pool(
    seeds: list[int], rows: int, chunk: int, blocks: int, kept: int, forked: bool
) -> None:
    limits = StepLimits(max_rows=rows, max_chunk_rows=chunk, max_kept_rows=kept)
    rig = Rig(blocks, 4, limits=limits)
    if forked:
        root = rig.open(PROMPT)
        sequences = rig.fork(root, seeds)
        rig.scheduler.release(root)
    else:
        sequences = [rig.open(PROMPT, seed=seed) for seed in seeds]
    requests = [rig.extend(seq, extend_params(18, sampling=PENALISED)) for seq in reversed(sequences)]
    rig.run(*requests)
    for request, seed in zip(requests, reversed(seeds), strict=True):
        assert list(rig.extension(request).tokens) == _naive(PROMPT, seed, 18, len(PROMPT))


def test_a_fork_inherits_the_counts_and_a_truncation_takes_them_back() -> None:
    rig = Rig()
    root = rig.open(PROMPT, seed=5)
    rig.run(rig.extend(root, extend_params(8, sampling=PENALISED)))
    rig.scheduler.append(root, [9, 9])
    [child] = rig.fork(root, [6])
    rig.scheduler.append(child, [21, 21])
    before = {seq: rig.tokens(seq) for seq in (root, child)}
    requests = {seq: rig.extend(seq, extend_params(6, sampling=PENALISED)) for seq in (root, child)}
    rig.run(*requests.values())
    for seq, seed in ((root, 5), (child, 6)):
        assert list(rig.extension(requests[seq]).tokens) == _naive(before[seq], seed, 6, len(PROMPT))
    rig.scheduler.truncate(child, 15)
    rig.scheduler.truncate(root, 6)  # into the prompt: what follows stands behind a shorter one
    rig.scheduler.append(root, [9])
    for seq, seed, prompt_length in ((root, 5, 6), (child, 6, len(PROMPT))):
        known = rig.tokens(seq)
        assert list(rig.extend_now(seq, extend_params(6, sampling=PENALISED)).tokens) == _naive(
            known, seed, 6, prompt_length
        )


def test_a_request_without_penalties_counts_nothing() -> None:
    rig = Rig()
    root = rig.open(PROMPT)
    rig.extend_now(root, extend_params(4, sampling=SamplingParams(logit_bias={3: 1.0}, min_tokens=9)))
    [child] = rig.fork(root, [1])
    sequences = rig.scheduler.family.sequences
    assert all(sequences[seq].counts is None for seq in (root, child))
    rig.extend_now(child, extend_params(2, sampling=PENALISED))
    assert sequences[root].counts is None
    assert sequences[child].counts is not None


def test_counts_go_back_with_a_dropped_stop_string() -> None:
    rig = Rig()
    root = rig.open(PROMPT, seed=5)
    whole = _naive(PROMPT, 5, 12, len(PROMPT))
    string = " ".join(map(str, whole[4:6]))
    first = rig.extend_now(root, extend_params(12, sampling=PENALISED, strings=(string,)))
    assert list(first.tokens) == whole[:4]
    assert list(rig.extend_now(root, extend_params(8, sampling=PENALISED)).tokens) == whole[4:]


def test_min_tokens_counts_from_the_prompt_over_extensions_and_forks() -> None:
    sampling = SamplingParams(min_tokens=6, allowed_tokens=(EOS, 3))
    params = extend_params(4, sampling=sampling, eos_ids=frozenset({EOS}))
    rig = Rig()
    root = rig.open(PROMPT)
    first = rig.extend_now(root, params)
    assert first.tokens == (3, 3, 3, 3)
    for child in rig.fork(root, range(6)):
        ended = rig.extend_now(child, extend_params(40, sampling=sampling, eos_ids=frozenset({EOS})))
        assert ended.tokens[:2] == (3, 3)
        assert ended.stop is Stop.EOS


def _details_agree(extension: Extension, before: list[int], sampling: SamplingParams) -> None:
    tokens = [*before, *extension.tokens]
    for place, token in enumerate(extension.tokens, start=len(before)):
        row = Row(tokens[:place])
        target = row.target(sampling, len(PROMPT), ())
        expected = token_detail(row.logits, target, token, sampling)
        assert expected is not None
        index = place - len(before)
        assert extension.processed_logprobs[index] == expected.processed_logprob
        assert extension.alternatives[index] == expected.alternatives
        assert extension.stats[index] == expected.stats


def test_details_come_one_per_kept_token() -> None:
    sampling = SamplingParams(
        temperature=0.8, frequency_penalty=1.0, processed_logprobs=True, top_logprobs=3, stats_top_k=5
    )
    rig = Rig()
    root = rig.open(PROMPT, seed=5)
    children = rig.fork(root, [1, 2])
    requests = {seq: rig.extend(seq, extend_params(7, sampling=sampling)) for seq in (root, *children)}
    rig.run(*requests.values())
    for request in requests.values():
        _details_agree(rig.extension(request), PROMPT, sampling)
    whole = _naive(PROMPT, 9, 7, len(PROMPT), sampling)
    cut = rig.open(PROMPT, seed=9)
    string = " ".join(map(str, whole[3:5]))
    extension = rig.extend_now(cut, extend_params(7, sampling=sampling, strings=(string,)))
    assert len(extension.stats) == len(extension.alternatives) == len(extension.tokens) == 3
    _details_agree(extension, PROMPT, sampling)


def test_what_was_not_asked_for_is_empty() -> None:
    rig = Rig()
    extension = rig.extend_now(rig.open(PROMPT), extend_params(3, sampling=SamplingParams(stats_top_k=2)))
    assert len(extension.stats) == 3
    assert (extension.processed_logprobs, extension.alternatives) == ((), ())


@pytest.mark.parametrize("forked", [False, True])
def test_a_row_without_a_token_fails_its_request_and_no_other(forked: bool) -> None:
    nothing = SamplingParams(allowed_tokens=(EOS,), min_tokens=2)
    rig = Rig()
    root = rig.open(PROMPT, seed=1)
    first, second = rig.fork(root, [1, 2]) if forked else (root, rig.open(PROMPT, seed=2))
    meters = RecordingMeter(), RecordingMeter()
    bad = rig.extend(first, extend_params(5, sampling=nothing, eos_ids=frozenset({EOS})), meters[0])
    good = rig.extend(second, extend_params(5), meters[1])
    rig.run(bad, good)
    error = rig.outcomes[bad].error
    assert isinstance(error, SamplingError)
    assert str(error) == f"sequence {first}: nothing is left to draw"
    assert [meter.balance() for meter in meters] == [(0, 0, 0), (0, 0, 0)]
    assert sum(work.tokens for work in meters[0].committed) == 0
    assert list(rig.extension(good).tokens) == NaiveEngine.extend(PROMPT, 2, extend_params(5), 99)[0]
    assert rig.tokens(first) == PROMPT
    again = rig.extend_now(SeqId(first), extend_params(5))
    assert list(again.tokens) == NaiveEngine.extend(PROMPT, 1, extend_params(5), 99)[0]
