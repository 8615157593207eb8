"""Drafts that are trees: rows of one path see no other path, and the accepted one stays as if it had been
written alone."""

import random
from collections import Counter
from itertools import product

import msgspec
import pytest
from branchwise.engine.drafting.automaton import SuffixAutomaton
from branchwise.engine.drafting.params import DraftModel, Suffix
from branchwise.engine.drafting.suffix import SuffixDrafter
from branchwise.engine.protocol import EngineUsage, ModelCost, SeqId
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.ahead import Ahead, Path, distinct
from branchwise.engine.sched.scheduler import StepLimits
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks import Rig, extend_params
from support.drafters import ErringRunner, RandomDrafter, TreeDrafter, steer
from support.oracle import NaiveEngine, oracle_info

PAYS = StepLimits(verify_fixed_rows=1000.0)
K = 5
PATHS = st.lists(st.lists(st.integers(0, 2), max_size=4).map(tuple), max_size=5)


def rig_with(*right: int, **options: object) -> Rig:
    """A rig whose drafts have one path per number, with so many of its first tokens right."""
    rig = Rig(limits=PAYS, **options)  # pyright: ignore[reportArgumentType]
    steer(rig.scheduler.speculation, TreeDrafter(right))
    return rig


def kv(rig: Rig, seq: SeqId) -> list[tuple[int, int] | None]:
    sequence, size = rig.scheduler.family.sequences[seq], rig.runner.block_size
    blocks = sequence.table.blocks
    return [rig.runner.slots[blocks[p // size] * size + p % size] for p in range(sequence.computed)]


@pytest.mark.parametrize("length", [9, 10, 11, 12])
@pytest.mark.pins("openvino.genai#4190", "mlxcel#994", "vllm#56734")
def test_after_every_pattern_of_rejections_the_kv_is_that_of_a_fresh_prefill(length: int) -> None:
    for right in product((0, 1, 3, K), repeat=3):
        rig = rig_with(*right)
        prompt = [7] * length
        seq = rig.open(prompt, seed=5)
        request = rig.extend(seq, extend_params(16, speculate=Suffix(k=K, width=3)))
        while request not in rig.outcomes:
            rig.step()
            sequence = rig.scheduler.family.sequences[seq]
            tokens = sequence.tokens[: sequence.computed]
            assert kv(rig, seq) == [(token, p) for p, token in enumerate(tokens)]
            assert len(sequence.table) == -(-sequence.computed // rig.runner.block_size)
        found = list(rig.extension(request).tokens)
        assert found == NaiveEngine.extend(prompt, 5, extend_params(16), 4096)[0]
        counters = rig.scheduler.counters
        assert counters.scheduled_rows == counters.rows_by_kind() == rig.runner.rows
        rig.scheduler.release(seq)
        assert rig.pool.owned == 0


@pytest.mark.parametrize("right", [(0, K, 0), (K, 0, 0), (0, 0, K), (2, K, 4)])
def test_the_longest_right_path_counts_wherever_it_stands(right: tuple[int, ...]) -> None:
    rig, usage = rig_with(*right), EngineUsage()
    seq = rig.open([7] * 9, seed=5, usage=usage)
    rig.extend_now(seq, extend_params(1 + 3 * (K + 1), speculate=Suffix(k=K, width=3)))
    assert rig.runner.steps == 1 + 3
    assert usage.accepted_tokens == 3 * K
    assert usage.draft_tokens == 3 * (K + 2 * (K + 1))
    counters = rig.scheduler.counters
    assert (counters.drafted_rows, counters.accepted_tokens) == (usage.draft_tokens, usage.accepted_tokens)
    assert counters.wasted_rows == usage.draft_tokens - usage.accepted_tokens


def test_each_token_of_a_tree_is_sampled_behind_once() -> None:
    """Paths share their beginning; its rows are computed again on each, its logits are not."""
    rig = rig_with(2, K, 4)
    seq = rig.open([7] * 9, seed=5)
    rig.extend(seq, extend_params(20, speculate=Suffix(k=K, width=3)))
    rig.step()
    before = rig.runner.samples[5]
    plan = rig.step()
    assert plan is not None
    spans = plan.models[0].spans
    nodes = [sample.node for span in spans for sample in span.samples]
    paths = {span.tokens[1 : 1 + end] for span in spans for end in range(1, K + 1)}
    assert sorted(nodes) == list(range(len(paths) + 1))
    assert rig.runner.samples[5] - before == len(paths) + 1


def test_paths_give_way_to_what_the_step_and_the_pool_have_left() -> None:
    for limits, blocks, expected in (
        (StepLimits(verify_fixed_rows=1000.0, max_rows=1 + K + K), 64, 1),
        (StepLimits(verify_fixed_rows=1000.0, max_rows=1 + K + 1 + K), 64, 2),
        (StepLimits(verify_fixed_rows=1000.0, max_chunk_rows=1 + K + K), 64, 1),
        (PAYS, 1 + 4 + 1, 1),
        (PAYS, 1 + 4 + 2, 2),
    ):
        rig = Rig(num_blocks=blocks, limits=limits)
        steer(rig.scheduler.speculation, TreeDrafter((K, 0, 0)))
        seq = rig.open([7] * 9, seed=5)
        rig.extend(seq, extend_params(20, speculate=Suffix(k=K, width=3)))
        while len(rig.tokens(seq)) == 9:
            rig.step()
        plan = rig.step()
        assert plan is not None
        assert len(plan.models[0].spans) == expected
        rig.run()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1000),
    blocks=st.integers(9, 60),
    rows=st.integers(1, 40),
    chunk=st.integers(1, 20),
    width=st.integers(1, 4),
    sampling=st.sampled_from(
        [
            SamplingParams(),
            SamplingParams(temperature=0.0),
            SamplingParams(repetition_penalty=1.7, presence_penalty=0.5, frequency_penalty=0.9),
            SamplingParams(temperature=0.0, frequency_penalty=2.0, min_tokens=6, logit_bias={5: 3.0}),
        ]
    ),
    wants=st.lists(st.integers(1, 14), min_size=1, max_size=4),
)
def test_no_tree_ever_changes_the_output(
    seed: int, blocks: int, rows: int, chunk: int, width: int, sampling: SamplingParams, wants: list[int]
) -> None:
    limits = StepLimits(max_rows=rows, max_chunk_rows=chunk, verify_fixed_rows=1000.0)
    rig = Rig(num_blocks=blocks, max_model_len=32, limits=limits)
    steer(rig.scheduler.speculation, RandomDrafter(random.Random(seed)))
    root = rig.open([7] * 9, seed=seed)
    requests = []
    seeds = range(100, 100 + len(wants))
    for child, want in zip(rig.fork(root, seeds), wants, strict=True):
        params = extend_params(
            want, sampling=sampling, eos_ids=frozenset({3, 11}), speculate=Suffix(k=6, width=width)
        )
        requests.append((rig.extend(child, params), params))
    rig.run()
    for (request, params), child_seed in zip(requests, seeds, strict=True):
        found = rig.extension(request)
        expected = NaiveEngine.extend([7] * 9, child_seed, params, 32)
        assert (list(found.tokens), list(found.logprobs), found.stop) == expected


@given(paths=PATHS)
def test_distinct_paths_are_the_leaves_of_their_tree(paths: list[tuple[int, ...]]) -> None:
    found = distinct(paths)
    prefixes = {path[:end] for path in paths for end in range(1, len(path) + 1)}
    leaves = {p for p in prefixes if not any(len(q) > len(p) and q[: len(p)] == p for q in prefixes)}
    assert Counter(found) == Counter(leaves)


@given(paths=PATHS.filter(any))
def test_a_tree_numbers_its_tokens_once_and_finds_them_by_their_parents(paths: list[tuple[int, ...]]) -> None:
    leaves = distinct(paths)
    ahead = Ahead([Path(tokens, 0, []) for tokens in leaves])
    prefixes = {path[:end] for path in leaves for end in range(1, len(path) + 1)}
    assert ahead.nodes == len(prefixes)
    assert ahead.rows == sum(map(len, leaves)) + len(leaves) - 1
    numbers: dict[tuple[int, ...], int] = {}
    for path in ahead.paths:
        node = 0
        for place, token in enumerate(path.tokens):
            found = ahead.child(node, token)
            assert found is not None
            node, first = found
            assert node == path.nodes[place]
            assert (first is path) == (place >= path.fresh_from)
            assert numbers.setdefault(path.tokens[: place + 1], node) == node
        assert ahead.child(node, 0) is None
    assert sorted(numbers.values()) == list(range(1, ahead.nodes + 1))


# Who proposes trees


def test_suffix_branches_off_where_siblings_went_apart() -> None:
    rig, usage, drafter = Rig(), EngineUsage(), SuffixDrafter()
    sequences = rig.scheduler.family.sequences
    for start, tail in enumerate(([4, 5, 6, 7], [4, 5, 6, 7], [4, 5, 6, 8], [4, 5, 9, 9])):
        drafter.observe(sequences[rig.open([20 + start, *tail], usage=usage)])
    reader = sequences[rig.open([3, 3, 4, 5], usage=usage)]
    assert drafter.propose(reader, 3, 1) == [(6, 7)]
    assert drafter.propose(reader, 3, 2) == [(6, 7), (6, 8)]
    assert drafter.propose(reader, 3, 9) == [(6, 7), (6, 8)]  # 9 had a quarter of the cases: too few


@settings(max_examples=40)
@given(
    texts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), min_size=1, max_size=3),
    k=st.integers(1, 5),
    most=st.integers(1, 4),
)
def test_paths_of_the_automaton(texts: list[list[int]], k: int, most: int) -> None:
    automaton = SuffixAutomaton()
    state = 0
    for text in texts:
        state = 0
        for token in text:
            state = automaton.extend(state, token)
    one = automaton.paths(state, k, 1, 1, 0.3)
    found = automaton.paths(state, k, most, 1, 0.3)
    assert found[:1] == one
    assert len(found) <= most
    assert all(0 < len(path) <= k for path in found)
    assert distinct(found) == found


def draft_rig(*, every: int) -> Rig:
    """The draft model errs at every so many positions."""
    cheap = msgspec.structs.replace(oracle_info("draft"), cost=ModelCost(1, 1, 1, 1, 1))
    rig = Rig(infos=[oracle_info("policy"), cheap], limits=PAYS)
    runner = rig.runners["draft"] = ErringRunner(64, 4)
    runner.every = every
    return rig


def test_a_draft_models_runner_up_is_verified_beside_its_draft() -> None:
    """Where the draft model always errs, each step gains its second choice and the token behind that."""
    rig, usage = draft_rig(every=1), EngineUsage()
    seq = rig.open([7] * 9, seed=5, usage=usage)
    found = rig.extend_now(seq, extend_params(21, speculate=DraftModel(k=1, width=2)))
    assert list(found.tokens) == NaiveEngine.extend([7] * 9, 5, extend_params(21), 4096)[0]
    assert rig.runners["policy"].steps == 1 + 10
    assert usage.accepted_tokens == 10


def test_a_draft_models_tree_shares_what_comes_before_each_runner_up() -> None:
    rig = draft_rig(every=10**6)
    seq = rig.open([7] * 9, seed=5)
    request = rig.extend(seq, extend_params(40, speculate=DraftModel(k=4, width=3)))
    while request not in rig.outcomes:
        plan = rig.step()
        assert plan is not None
        spans = [span for part in plan.models if part.model == "policy" for span in part.spans]
        if len(spans) > 1:
            first, second, third = (span.tokens[1:] for span in spans)
            assert (len(first), len(second), len(third)) == (4, 1, 2)
            assert second[0] != first[0]
            assert third[0] == first[0]
            assert third[1] != first[1]
            return
    raise AssertionError("no tree was drafted")
