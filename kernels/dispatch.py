"""Which implementation computes: chosen by device, shape and what was built; no caller asks."""

from collections.abc import Iterable

import torch

from .attention import HeadShape, PagedAttention
from .fixed_attention import FixedAttention
from .interface import Attention


def make_attention(
    shape: HeadShape,
    key_chunk: int,
    windows: Iterable[int | None],
    dtype: torch.dtype,
    device: torch.device,
    *,
    deterministic: bool,
) -> Attention:
    """Attention of one model over its pool, in `dtype`. `key_chunk` keys per item of the torch versions;
    `windows` are the sliding windows of its layers. With `deterministic` a row's bits do not depend on what
    else is in a step."""
    if device.type == "cpu":
        from .native.attention import NativeAttention, supports
        from .native.library import library

        native = library() if supports(shape, dtype, device) else None
        if native is not None:
            return NativeAttention(native, shape, windows, dtype)
    if deterministic:
        return FixedAttention(shape, key_chunk, windows, dtype, device)
    return PagedAttention(shape, key_chunk, windows, device)
