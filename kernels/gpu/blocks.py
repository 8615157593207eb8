"""Copies and clears of whole KV blocks: all layers, keys and values in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .build import Build, Ceiling
from .launch import on_grid, tiles

BLOCK = 2048
WARPS = 4


@triton.jit
def move_blocks(pool, sources, targets, num_blocks, words, block: tl.constexpr, clears: tl.constexpr):
    """Fill block `targets[i]` of one plane of `pool` [planes, num_blocks, words] int32 from block
    `sources[i]`, or with zeros; a target below 0 is skipped."""
    target = tl.load(targets + tl.program_id(0)).to(tl.int64)
    if target >= 0:
        word = tl.program_id(1) * block + tl.arange(0, block)
        inside = word < words
        plane = pool + tl.program_id(2).to(tl.int64) * num_blocks * words
        if clears:
            content = tl.zeros([block], tl.int32)
        else:
            source = tl.load(sources + tl.program_id(0)).to(tl.int64)
            content = tl.load(plane + source * words + word, mask=inside, other=0)
        tl.store(plane + target * words + word, content, mask=inside)


def copy_blocks(pool: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Copy blocks `sources` to blocks `targets`, integers [count] on the pool's device, in every layer of
    `pool` [layers, 2, blocks, kv_heads, block_size, head_dim], contiguous. No target is also a source, no two
    targets are equal; a target below 0 is skipped."""
    assert sources.shape == targets.shape
    _launch(pool, sources, targets, clears=False)


def clear_blocks(pool: Tensor, targets: Tensor) -> None:
    """Zero blocks `targets`, integers [count] on the pool's device, in every layer of `pool` as `copy_blocks`
    has it; a target below 0 is skipped."""
    _launch(pool, targets, targets, clears=True)


def _launch(pool: Tensor, sources: Tensor, targets: Tensor, *, clears: bool) -> None:
    words = _as_words(pool)
    planes, num_blocks, per_block = words.shape
    if targets.numel():
        on_grid(move_blocks, targets.numel(), tiles(per_block, BLOCK), planes)(
            words,
            sources,
            targets,
            num_blocks,
            per_block,
            block=BLOCK,
            clears=clears,
            num_warps=WARPS,
            num_stages=1,
        )


def _as_words(pool: Tensor) -> Tensor:
    """The pool as int32 [layers * 2, blocks, words per block], whatever its type."""
    assert pool.is_contiguous()
    if pool[0, 0, 0].numel() * pool.element_size() % 4:
        raise ValueError(f"a KV block of shape {tuple(pool.shape[3:])} is no whole number of 4-byte words")
    layers, parts, blocks = pool.shape[:3]
    return pool.view(-1).view(torch.int32).view(layers * parts, blocks, -1)


def builds() -> list[Build]:
    """One build serves all pools whose blocks are multiples of 64 bytes."""
    signature = {
        "pool": "*i32",
        "sources": "*i64",
        "targets": "*i64",
        "num_blocks": "i32",
        "words": "i32",
    }
    return [
        Build(
            name=f"{'clear' if clears else 'copy'}_blocks",
            kernel=move_blocks,
            signature=signature,
            constants={"block": BLOCK, "clears": clears},
            ceilings=dict.fromkeys((80, 90), Ceiling(registers=32, shared_bytes=0)),
            warps=WARPS,
            stages=1,
            divisible=("words",),
        )
        for clears in (False, True)
    ]
