"""Copies and clears of whole KV blocks in torch."""

from torch import Tensor


def copy_blocks(pool: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Copy blocks `sources` [count] of `pool` [layers, 2, blocks, ..] to `targets`, in every layer; a target
    below 0 is skipped."""
    kept = targets >= 0
    pool[:, :, targets[kept].long()] = pool[:, :, sources[kept].long()]


def clear_blocks(pool: Tensor, targets: Tensor) -> None:
    """Zero blocks `targets` [count] of `pool`, in every layer; a target below 0 is skipped."""
    pool[:, :, targets[targets >= 0].long()] = 0
