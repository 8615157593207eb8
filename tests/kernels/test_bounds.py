"""The roofline: golden values worked out by hand, and what any bound must satisfy."""

import pytest
from branchwise.kernels.bounds import (
    H200,
    LLAMA_8B,
    Bound,
    Machine,
    Tree,
    attention,
    beam,
    best_of,
    chain_verify,
    copy_blocks,
    decode_step,
    draft_trees,
    lmhead_lse,
    lmhead_sample,
    matmul,
    rmsnorm_residual,
    rope_kv_write,
    sample_rows,
    silu_mul,
    tree_walk,
)
from hypothesis import given
from hypothesis import strategies as st

# (tree, KV in MB, microseconds of a layer, milliseconds of a step), unshared and shared
GOLDEN = [
    (best_of(8, 2048, 512, 5), (84, 25), (19.5, 6.2), (4.12, 3.69)),
    (best_of(64, 2048, 512, 5), (671, 143), (156, 35.9), (8.49, 4.64)),
    (best_of(64, 8192, 512, 9), (2282, 168), (531, 43.7), (20.5, 4.9)),
    (best_of(256, 1024, 1024, 4), (2148, 1078), (500, 260), (19.5, 11.8)),
    (best_of(256, 4096, 256, 6), (4563, 285), (1062, 79), (37.5, 6.0)),
    (best_of(64, 1024, 8192, 10), (2416, 2152), (562, 506), (21.5, 19.7)),
    (beam(64, 8, 512, 1024, 64, 5), (419, 52), (98, 14.9), (6.6, 4.0)),
    (beam(256, 16, 512, 1024, 64, 5), (1678, 136), (391, 42.5), (16.0, 4.9)),
    (draft_trees(8, 16, 4096), (2148, 135), (500, 33.8), None),
]


@pytest.mark.parametrize(("tree", "kv", "layer", "step"), GOLDEN)
def test_attention_keeps_its_golden_values(
    tree: Tree, kv: tuple[float, float], layer: tuple[float, float], step: tuple[float, float] | None
) -> None:
    both = (tree.unshared(), tree)
    assert [each.unique * LLAMA_8B.kv_bytes / 1e6 for each in both] == pytest.approx(kv, abs=0.6)
    found = [attention(LLAMA_8B, each).seconds(H200) * 1e6 for each in both]
    assert found == pytest.approx(layer, rel=0.012)
    if step is not None:
        steps = [decode_step(LLAMA_8B, each, H200) * 1e3 for each in both]
        assert steps == pytest.approx(step, rel=0.012)


@pytest.mark.parametrize(
    ("bound", "microseconds"),
    [
        (Bound(LLAMA_8B.weight_bytes), 3490),
        (lmhead_sample(LLAMA_8B, 1), 244),
        (lmhead_sample(LLAMA_8B, 256), 340),
        (lmhead_lse(LLAMA_8B, 4096), 5450),
        (sample_rows(LLAMA_8B, 256, logit_bytes=2), 15.3),
        (sample_rows(LLAMA_8B, 256), 30.5),
        (rmsnorm_residual(LLAMA_8B, 256), 2.0),
        (silu_mul(LLAMA_8B, 256), 5.1),
        (rope_kv_write(LLAMA_8B, 256), 1.5),
        (copy_blocks(LLAMA_8B, 1, 64), 3.9),
        (chain_verify(LLAMA_8B, 64), 15.3),
        (matmul(1, 4096, 128256), 244),
    ],
)
def test_kernels_keep_their_golden_values(bound: Bound, microseconds: float) -> None:
    assert bound.seconds(H200) * 1e6 == pytest.approx(microseconds, rel=0.03)


def test_a_tree_walk_takes_no_time_beside_its_launch() -> None:
    assert tree_walk(64, 16, 8).seconds(H200) < 1e-7


def test_kv_of_one_position_and_weights_of_a_step() -> None:
    assert LLAMA_8B.kv_bytes == 4096
    assert LLAMA_8B.layers * LLAMA_8B.kv_bytes == 128 * 1024
    assert LLAMA_8B.weight_bytes == pytest.approx(15.0e9, rel=0.01)


COUNTS = st.integers(1, 4096)


@given(rows=COUNTS, prompt=COUNTS, answer=COUNTS)
def test_sharing_moves_no_more_kv_and_computes_as_much(rows: int, prompt: int, answer: int) -> None:
    tree = best_of(rows, prompt, answer, items=2)
    assert tree.unique <= tree.unshared().unique
    assert attention(LLAMA_8B, tree).flops == attention(LLAMA_8B, tree.unshared()).flops
    assert (tree.unique == tree.unshared().unique) == (rows == 1)


@given(moved=st.floats(1, 1e12), flops=st.floats(0, 1e15), factor=st.floats(1, 10))
def test_a_bound_is_the_longer_of_two_times(moved: float, flops: float, factor: float) -> None:
    bound = Bound(moved, flops)
    seconds = bound.seconds(H200)
    assert seconds >= moved / H200.bytes_per_s
    assert seconds >= flops / H200.flops_per_s
    assert seconds in (moved / H200.bytes_per_s, flops / H200.flops_per_s)
    faster = Machine("faster", factor * H200.bytes_per_s, factor * H200.flops_per_s, H200.l2_bytes)
    assert bound.seconds(faster) == pytest.approx(seconds / factor)


def test_a_prompt_of_many_rows_is_bound_by_operations() -> None:
    """Beyond about 46 rows per shared position, for 4 query heads to each of keys."""
    few, many = (best_of(rows, 100_000, 0, items=0) for rows in (40, 60))
    found = [attention(LLAMA_8B, tree) for tree in (few, many)]
    assert found[0].seconds(H200) == found[0].bytes / H200.bytes_per_s
    assert found[1].seconds(H200) == found[1].flops / H200.flops_per_s


def test_the_prompt_that_all_rows_share_may_lie_in_the_cache() -> None:
    """So a kernel that shares nothing may read it faster than its bound says."""
    assert H200.holds(8192 * LLAMA_8B.kv_bytes)
    assert not H200.holds(16384 * LLAMA_8B.kv_bytes)
