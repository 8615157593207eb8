"""Which implementation computes: chosen by device, shape and what was built; no caller asks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .attention import HeadShape, PagedAttention
from .elementwise import TorchElementwise
from .fixed_attention import FixedAttention
from .interface import Attention, Elementwise
from .linear import Linear, Product

if TYPE_CHECKING:
    from .native.sampling import NativeDrawing


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


def make_elementwise(
    heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
) -> Elementwise:
    """The steps between the products of one model in `dtype`."""
    if device.type == "cpu" and dtype in (torch.float32, torch.bfloat16):
        from .native.elementwise import NativeElementwise
        from .native.library import library

        native = library()
        if native is not None:
            return NativeElementwise(native, heads, kv_heads, head_dim, dtype)
    return TorchElementwise(heads, kv_heads, head_dim)


def make_drawing(device: torch.device) -> "NativeDrawing | None":
    """The native draw from rows of logits, where there is one for `device`."""
    if device.type != "cpu":
        return None
    from .native.library import library
    from .native.sampling import NativeDrawing

    native = library()
    return None if native is None else NativeDrawing(native)


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """Products with `weight` [outputs, inputs] and optional `bias` [outputs]."""
    if weight.device.type == "cpu":
        from .native.library import library
        from .native.linear import NativeLinear, multiplies

        native = library()
        if native is not None and multiplies(native, weight):
            return NativeLinear(native, weight, bias)
    return Linear(weight, bias)
