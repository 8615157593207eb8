"""Launches of kernels, with the types that Triton leaves out."""

from collections.abc import Callable
from typing import Any


def on_grid(kernel: Any, *grid: int) -> Callable[..., None]:
    """`kernel` on `grid`, to be called with its arguments and with num_warps and num_stages, which Triton's
    own types do not know."""
    return kernel[grid]


def tiles(n: int, tile: int) -> int:
    """How many tiles of `tile` cover `n`."""
    return -(-n // tile)
