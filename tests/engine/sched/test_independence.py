"""Same seed, same tokens: alone or in a crowd, for any chunk size, step budget, pool and order of arrival."""

import pytest
from branchwise.engine.protocol import ExtendParams
from branchwise.engine.sched.scheduler import StepLimits
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks import Rig, extend_params
from support.oracle import NaiveEngine

PROMPTS = [[7] * 9, [7] * 8 + [3], list(range(1, 14)), [9]]
PARAMS: ExtendParams = extend_params(10)


@pytest.mark.pins("vllm#17524", "vllm#51226", "sglang#28805")
@settings(max_examples=40)
@given(
    blocks=st.integers(9, 40),
    rows=st.integers(1, 40),
    chunk=st.integers(1, 40),
    arrivals=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=8
    ),
)
@pytest.mark.pins("sglang#15481", "sglang#15746", "vllm#1595", "vllm#2514")
def test_tokens_depend_on_seed_and_prompt_only(
    blocks: int, rows: int, chunk: int, arrivals: list[tuple[int, int, int]]
) -> None:
    """`arrivals`: prompt, seed, and steps to wait before the next one comes."""
    limits = StepLimits(max_rows=rows, max_chunk_rows=chunk)
    rig = Rig(num_blocks=blocks, block_size=4, max_model_len=32, limits=limits)
    requests: list[tuple[int, list[int], int]] = []
    for which, seed, wait in arrivals:
        prompt = PROMPTS[which]
        seq = rig.open(prompt, seed=seed)
        requests.append((rig.extend(seq, PARAMS), prompt, seed))
        for _ in range(wait):
            rig.step()
    rig.run()
    for request, prompt, seed in requests:
        expected = NaiveEngine.extend(prompt, seed, PARAMS, 32)
        got = rig.extension(request)
        assert (list(got.tokens), list(got.logprobs), got.stop) == expected


@pytest.mark.pins("sglang#28805")
@pytest.mark.pins("UniRL#208", "verl#6857", "sglang#11048")
def test_siblings_are_distinct_and_a_rerun_is_identical() -> None:
    runs: list[list[tuple[int, ...]]] = []
    for _ in range(2):
        rig = Rig(num_blocks=200, block_size=4)
        root = rig.open(PROMPTS[2])
        requests = [rig.extend(child, PARAMS) for child in rig.fork(root, range(1000, 1016))]
        rig.run(*requests)
        runs.append([rig.extension(request).tokens for request in requests])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 16


def test_a_step_never_exceeds_its_rows() -> None:
    rig = Rig(num_blocks=200, block_size=4, limits=StepLimits(max_rows=7, max_chunk_rows=5))
    requests = [rig.extend(rig.open([seed] * 20, seed=seed), PARAMS) for seed in range(1, 12)]
    rig.run(*requests)
    assert rig.runner.largest_step <= 7


def test_requests_of_one_search_are_served_in_its_order() -> None:
    rig = Rig(num_blocks=200, block_size=4, limits=StepLimits(max_rows=6, max_chunk_rows=6))
    orders = [(3,), (1,), (2,), (0,)]
    requests = {
        order: rig.extend(rig.open([5, order[0]] * 3), extend_params(1, order=order)) for order in orders
    }
    ended: list[tuple[int, ...]] = []
    while len(ended) < 4:
        rig.step()
        ended += [o for o, r in sorted(requests.items()) if r in rig.outcomes and o not in ended]
    assert ended == sorted(orders)


def test_decodes_are_not_held_up_by_a_long_prefill() -> None:
    rig = Rig(num_blocks=200, block_size=4, limits=StepLimits(max_rows=8, max_chunk_rows=8))
    short = rig.extend(rig.open([1, 2, 3]), extend_params(8))
    rig.step()
    rig.extend(rig.open([4] * 70), extend_params(1))
    steps = 0
    while short not in rig.outcomes:
        rig.step()
        steps += 1
    assert steps == 7
