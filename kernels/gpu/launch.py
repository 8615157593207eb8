"""Launches of kernels, with the types that Triton leaves out."""

from collections.abc import Callable
from typing import Any


def on_grid(kernel: Any, *grid: int) -> Callable[..., None]:
    """`kernel` on `grid`, to be called with its arguments and with num_warps and num_stages, which Triton's
    own types do not know."""
    return kernel[grid]


def next_power_of_2(n: int) -> int:
    """The least power of two that is at least `n`, which is at least 1."""
    return 1 << (n - 1).bit_length()


def tiles(n: int, tile: int) -> int:
    """How many tiles of `tile` cover `n`."""
    return -(-n // tile)
