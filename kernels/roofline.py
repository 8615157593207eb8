"""The bounds as tables: Llama 3 8B in bf16 on an H200."""

from collections.abc import Iterable

from .bounds import (
    H200,
    LLAMA_8B,
    Bound,
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
    merge_states,
    rmsnorm_residual,
    rope_kv_write,
    sample_rows,
    silu_mul,
    tree_attention,
    tree_walk,
)

CASES: tuple[tuple[str, Tree], ...] = (
    ("best of 8, prompt 2048, answers 512", best_of(8, 2048, 512, items=5)),
    ("best of 64, prompt 2048, answers 512", best_of(64, 2048, 512, items=5)),
    ("best of 64, prompt 8192, answers 512", best_of(64, 8192, 512, items=9)),
    ("best of 256, prompt 1024, answers 1024", best_of(256, 1024, 1024, items=4)),
    ("best of 256, prompt 4096, answers 256", best_of(256, 4096, 256, items=6)),
    ("best of 64, prompt 1024, answers 8192", best_of(64, 1024, 8192, items=10)),
    ("64 beams of 8 paths, prompt 512, 8 steps of 128", beam(64, 8, 512, 1024, 64, items=5)),
    ("256 beams of 16 paths, prompt 512, 8 steps of 128", beam(256, 16, 512, 1024, 64, items=5)),
    ("8 draft trees of 16, contexts 4096", draft_trees(8, 16, 4096)),
)
"""A decode step's rows and what they see. The beams are 64 positions into the next step."""

_TREE = CASES[1][1]

KERNELS: tuple[tuple[str, str, Bound, str], ...] = (
    ("tree_attention", "best of 64, prompt 2048, answers 512", tree_attention(LLAMA_8B, _TREE), "–"),
    ("merge_states", "the same", merge_states(LLAMA_8B, _TREE), "–"),
    ("tree_attention, merge_states", "the same", attention(LLAMA_8B, _TREE), "55"),
    (
        "tree_attention, merge_states",
        "64 rows of 2560, nothing shared",
        attention(LLAMA_8B, _TREE.unshared()),
        "208",
    ),
    ("sample_rows", "64 rows, fp32, two sweeps", sample_rows(LLAMA_8B, 64, sweeps=2), "60"),
    ("sample_rows", "256 rows, fp32, two sweeps", sample_rows(LLAMA_8B, 256, sweeps=2), "120"),
    ("lmhead_sample", "64 rows", lmhead_sample(LLAMA_8B, 64), "300"),
    ("lmhead_lse", "4096 rows", lmhead_lse(LLAMA_8B, 4096), "9100"),
    ("copy_blocks", "64 blocks of 64, all layers", copy_blocks(LLAMA_8B, 64, 64), "294"),
    ("rope_kv_write", "8192 rows", rope_kv_write(LLAMA_8B, 8192), "62"),
    ("rmsnorm_residual", "8192 rows", rmsnorm_residual(LLAMA_8B, 8192), "78"),
    ("silu_mul", "8192 rows", silu_mul(LLAMA_8B, 8192), "193"),
    ("tree_walk", "64 trees of 16", tree_walk(64, 16, 8), "5"),
    ("chain_verify", "64 sequences", chain_verify(LLAMA_8B, 64), "40"),
    ("matmul", "64 rows, 4096 to 28672", matmul(64, 4096, 28672), "70% of cuBLAS"),
)
"""Kernel, shape, bound, and the goal of its first measurement in microseconds."""


def attention_table() -> str:
    """Markdown: KV per layer, attention per layer and the whole step, with every row's KV read for itself and
    with each position read once."""
    head = ("case", "KV, MB per layer", "attention, us per layer", "whole step, ms", "ratio")
    rows = []
    for name, tree in CASES:
        both = (tree.unshared(), tree)
        kv = [each.unique * LLAMA_8B.kv_bytes / 1e6 for each in both]
        layer = [attention(LLAMA_8B, each).seconds(H200) * 1e6 for each in both]
        step = [decode_step(LLAMA_8B, each, H200) * 1e3 for each in both]
        ratio = f"{step[0] / step[1]:.2f}"
        rows.append((name, _pair(kv), _pair(layer), f"{step[0]:.2f} to {step[1]:.2f}", ratio))
    return _table(head, rows)


def kernel_table() -> str:
    """Markdown: bound and goal of each kernel."""
    head = ("kernel", "shape", "bound, us", "goal, us")
    bounds = [(*each, bound.seconds(H200) * 1e6, goal) for *each, bound, goal in KERNELS]
    rows = [
        (f"`{name.replace(', ', '`, `')}`", shape, _figure(bound), goal)
        for name, shape, bound, goal in bounds
    ]
    return _table(head, rows)


def _pair(values: list[float]) -> str:
    return " to ".join(map(_figure, values))


def _figure(value: float) -> str:
    if value < 0.1:
        return "under 0.1"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
