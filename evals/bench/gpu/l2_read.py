"""How fast a buffer that lies in the L2 cache is read."""

import torch
import triton
import triton.language as tl

from ....kernels.gpu.launch import on_grid

_BLOCK = 2048
_PROGRAMS = 1056
_WARPS = 4


@triton.jit
def read_again(words, sums, blocks, block: tl.constexpr):
    """Each program reads all `blocks` blocks of `words` int32, from a place of its own, past the L1 cache."""
    place = tl.arange(0, block)
    total = tl.zeros([block], tl.int32)
    for step in range(blocks):
        at = (tl.program_id(0) * 7 + step) % blocks
        total += tl.load(words + at * block + place, cache_modifier=".cg")
    tl.store(sums + tl.program_id(0) * block + place, total)


def read_everywhere(words: torch.Tensor, sums: torch.Tensor) -> int:
    """Launch it over int32 `words`, a multiple of 2048; `sums` int32 [programs * 2048] takes what is read.
    Returns the bytes that are read."""
    blocks, programs = words.numel() // _BLOCK, sums.numel() // _BLOCK
    on_grid(read_again, programs)(words, sums, blocks, block=_BLOCK, num_warps=_WARPS)
    return programs * blocks * _BLOCK * 4


def room_for_sums(programs: int, device: torch.device) -> torch.Tensor:
    """What `programs` programs write to; 0 for as many as fill an H200."""
    return torch.empty((programs or _PROGRAMS) * _BLOCK, dtype=torch.int32, device=device)
