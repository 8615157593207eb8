"""A draft model writes on mirrors: same noise, own pool, own counters, and nothing of it in the result."""

import msgspec
import pytest
from branchwise.engine.drafting.params import DraftModel
from branchwise.engine.protocol import EngineUsage, ModelCost
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.sched.scheduler import StepLimits
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks import RecordingMeter, Rig, extend_params
from support.drafters import ErringRunner
from support.oracle import NaiveEngine, OracleRunner, oracle_info

PROMPT = [7] * 9
DRAFT = DraftModel(k=4)
PAYS = StepLimits(verify_fixed_rows=1000.0)


def make(*, erring: bool = False, blocks: int = 64, draft_len: int = 4096, limits: StepLimits = PAYS) -> Rig:
    """A policy, and a draft model whose rows cost next to nothing."""
    draft = oracle_info("draft", max_model_len=draft_len)
    draft = msgspec.structs.replace(draft, cost=ModelCost(1, 1, 1, 1, 1))
    infos = [oracle_info("policy"), draft]
    rig = Rig(blocks, infos=infos, limits=limits)
    if erring:
        rig.runners["draft"] = ErringRunner(blocks, 4)
    return rig


def test_a_model_that_agrees_is_accepted_whole() -> None:
    """The noise is the target's: at temperature 1 two equal models write the same text."""
    rig, usage = make(), EngineUsage()
    seq = rig.open(PROMPT, seed=5, usage=usage)
    found = rig.extend_now(seq, extend_params(21, speculate=DRAFT))
    assert list(found.tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(21), 4096)[0]
    assert usage.draft_tokens == usage.accepted_tokens == 16
    assert rig.runners["policy"].steps == 1 + 4


def test_rejected_tokens_are_cut_off_the_mirror_and_the_bonus_token_is_fed() -> None:
    rig = make(erring=True)
    seq = rig.open(PROMPT, seed=5)
    request = rig.extend(seq, extend_params(30, speculate=DRAFT))
    draft = rig.runners["draft"]
    while request not in rig.outcomes:
        rig.step()
        for one in rig.scheduler.family.sequences.values():
            if one.memory.name == "draft":
                kv = [draft.slots[one.table.blocks[p // 4] * 4 + p % 4] for p in range(one.computed)]
                assert kv == [(token, p) for p, token in enumerate(one.tokens[: one.computed])]
    assert list(rig.extension(request).tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(30), 4096)[0]
    # No row of the draft is computed twice: its own counter goes on where target and draft still agree.
    assert max(draft.row_positions.values()) == 1


def test_the_draft_pool_is_whole_again_when_the_sequence_ends() -> None:
    rig, usage = make(erring=True), EngineUsage()
    seq = rig.open(PROMPT, seed=5, usage=usage)
    request = rig.extend(seq, extend_params(30, speculate=DRAFT))
    for _ in range(5):
        rig.step()
    assert rig.scheduler.memories["draft"].pool.owned > 0
    rig.scheduler.cancel(request)
    rig.scheduler.release(seq)
    assert all(memory.pool.owned == 0 for memory in rig.scheduler.memories.values())
    assert all(memory.accounts() == () for memory in rig.scheduler.memories.values())
    assert usage.kv_tokens == 0
    assert rig.step() is None


def test_every_row_of_both_models_is_counted_once() -> None:
    rig, usage, meter = make(erring=True), EngineUsage(), RecordingMeter()
    seq = rig.open(PROMPT, seed=5, usage=usage)
    rig.extend_now(seq, extend_params(30, speculate=DRAFT), meter)
    rows = usage.prefill_tokens + usage.decode_tokens + usage.recomputed_tokens + usage.draft_tokens
    assert rows == sum(runner.rows for runner in rig.runners.values())
    assert {work.model for work in meter.granted} == {"policy"}
    assert sum(work.tokens for work in meter.committed) == 30


@pytest.mark.pins("vllm#47930")
def test_what_only_the_target_has_cached_the_draft_model_computes_itself() -> None:
    """Else it would draft behind a prefix that it never saw, and little would be accepted."""
    rig, usage = make(), EngineUsage()
    prompt = [7] * 20
    first = rig.open(prompt, seed=4)
    rig.extend_now(first, extend_params(1))
    rig.scheduler.release(first)
    seq = rig.open(prompt, seed=5, usage=usage)
    rig.extend_now(seq, extend_params(21, speculate=DRAFT))
    assert usage.cached_tokens == 19
    assert usage.draft_tokens == usage.accepted_tokens == 16
    draft = rig.runners["draft"]
    assert sum(count for (_, position), count in draft.row_positions.items() if position < 20) == 20


@pytest.mark.pins("vllm#57941")
def test_a_draft_context_shorter_than_the_targets_ends_the_drafts_only() -> None:
    rig = make(draft_len=16)
    seq = rig.open(PROMPT, seed=5)
    found = rig.extend_now(seq, extend_params(30, speculate=DRAFT))
    assert list(found.tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(30), 4096)[0]


def test_a_failing_draft_model_fails_nobody() -> None:
    rig = make()

    def fail(plan: ModelPlan) -> None:
        raise ConnectionError("injected")

    rig.runners["draft"].before_step = fail
    seq = rig.open(PROMPT, seed=5)
    found = rig.extend_now(seq, extend_params(12, speculate=DRAFT))
    assert list(found.tokens) == NaiveEngine.extend(PROMPT, 5, extend_params(12), 4096)[0]


@settings(max_examples=40)
@given(
    blocks=st.integers(9, 40),
    rows=st.integers(1, 30),
    chunk=st.integers(1, 9),
    wants=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    erring=st.booleans(),
)
def test_siblings_are_the_same_with_a_draft_model_on_any_pool(
    blocks: int, rows: int, chunk: int, wants: list[int], erring: bool
) -> None:
    limits = StepLimits(max_rows=rows, max_chunk_rows=chunk, verify_fixed_rows=1000.0)
    rig = make(erring=erring, blocks=blocks, limits=limits)
    root = rig.open(PROMPT, seed=1)
    seeds = range(100, 100 + len(wants))
    requests = [
        (rig.extend(child, params), params)
        for child, want in zip(rig.fork(root, seeds), wants, strict=True)
        for params in [extend_params(want, speculate=DRAFT)]
    ]
    rig.run()
    for (request, params), seed in zip(requests, seeds, strict=True):
        found = rig.extension(request)
        expected = NaiveEngine.extend(PROMPT, seed, params, min(4096, (blocks - 1) * 4))
        assert (list(found.tokens), list(found.logprobs), found.stop) == expected


def test_siblings_share_their_prompt_in_the_draft_pool() -> None:
    rig = make()
    root = rig.open([7] * 40, seed=1)
    for child in rig.fork(root, range(8)):
        rig.extend(child, extend_params(12, speculate=DRAFT))
    rig.run()
    draft = rig.runners["draft"]
    assert isinstance(draft, OracleRunner)
    prompt_rows = sum(count for (_, position), count in draft.row_positions.items() if position < 36)
    assert prompt_rows == 36
