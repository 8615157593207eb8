"""Which implementation computes: chosen by device, shape and what was built; no caller asks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .attention import HeadShape, PagedAttention
from .blocks import BlockMover, TorchMover, TritonMover, whole_words
from .choice import Family, family
from .elementwise import TorchElementwise
from .fixed_attention import FixedAttention
from .interface import Attention, Elementwise
from .linear import Linear, Product, whole_tiles
from .plan import capacity_for
from .work import PAGE_SIZES

if TYPE_CHECKING:
    from .native.sampling import NativeDrawing
    from .triton_drawing import TritonDrawing


_MOST_CHUNKS = 32
_LEAST_CHUNK = 256
"""Keys per chunk of the deterministic mode on a GPU."""

_PROGRAMS_PER_PROCESSOR = 4
"""What a multiprocessor holds of the narrow items' kernel, by its registers and shared memory."""
_PROGRAMS_IN_INTERPRETER = 4


def make_attention(
    shape: HeadShape,
    key_chunk: int,
    windows: Iterable[int | None],
    dtype: torch.dtype,
    device: torch.device,
    *,
    longest: int,
    max_rows: int,
    deterministic: bool,
) -> Attention:
    """Attention of one model over its pool, in `dtype`. `key_chunk` keys per item of the torch versions;
    `windows` are the sliding windows of its layers; a sequence has up to `longest` positions, a step up to
    `max_rows` rows. With `deterministic` a row's bits do not depend on what else is in a step."""
    match family(device):
        case Family.TRITON if shape.block_size in PAGE_SIZES:
            return _item_attention(
                shape, windows, device, longest=longest, max_rows=max_rows, deterministic=deterministic
            )
        case Family.NATIVE:
            from .native.attention import NativeAttention, supports
            from .native.library import library

            native = library() if supports(shape, dtype, device) else None
            if native is not None:
                return NativeAttention(native, shape, windows, dtype)
    if deterministic:
        return FixedAttention(shape, key_chunk, windows, dtype, device)
    return PagedAttention(shape, key_chunk, windows, device)


def _item_attention(
    shape: HeadShape,
    windows: Iterable[int | None],
    device: torch.device,
    *,
    longest: int,
    max_rows: int,
    deterministic: bool,
) -> Attention:
    from .item_attention import ItemAttention

    # Fewer cuts than of a CPU, so that the partial results of a long context fit into memory.
    keys = max(longest // _MOST_CHUNKS, _LEAST_CHUNK)
    chunk = -(-keys // shape.block_size) * shape.block_size if deterministic else None
    blocks = -(-longest // shape.block_size)
    # The padding of fixed rows attends too, to nothing.
    capacity = capacity_for(whole_tiles(max_rows), max_rows, blocks, shape.block_size, chunk=chunk)
    return ItemAttention(shape, windows, device, capacity, programs=_programs(device), chunk=chunk)


def _programs(device: torch.device) -> int:
    """Programs of the attention that run on the device at once."""
    if device.type != "cuda":
        return _PROGRAMS_IN_INTERPRETER
    return torch.cuda.get_device_properties(device).multi_processor_count * _PROGRAMS_PER_PROCESSOR


def make_elementwise(
    heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
) -> Elementwise:
    """The steps between the products of one model in `dtype`."""
    match family(device):
        case Family.TRITON:
            from .triton_elementwise import TritonElementwise

            return TritonElementwise(heads, device)
        case Family.NATIVE if dtype in (torch.float32, torch.bfloat16):
            from .native.elementwise import NativeElementwise
            from .native.library import library

            native = library()
            if native is not None:
                return NativeElementwise(native, heads, kv_heads, head_dim, dtype)
    return TorchElementwise(heads, kv_heads, head_dim)


def make_drawing(device: torch.device) -> "NativeDrawing | None":
    """The native draw from rows of logits, where there is one for `device`."""
    if family(device) is not Family.NATIVE:
        return None
    from .native.library import library
    from .native.sampling import NativeDrawing

    native = library()
    return None if native is None else NativeDrawing(native)


def make_device_drawing(device: torch.device) -> "TritonDrawing | None":
    """The Triton kernels' draw, filters included, where they serve `device`."""
    if family(device) is not Family.TRITON:
        return None
    from .triton_drawing import TritonDrawing

    return TritonDrawing(device)


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """Products with `weight` [outputs, inputs] and optional `bias` [outputs]."""
    match family(weight.device):
        case Family.TRITON:
            from .triton_linear import TritonLinear

            return TritonLinear(weight, bias)
        case Family.NATIVE:
            from .native.library import library
            from .native.linear import NativeLinear, multiplies

            native = library()
            if native is not None and multiplies(native, weight):
                return NativeLinear(native, weight, bias)
    return Linear(weight, bias)


def make_mover(device: torch.device, block_values: int, dtype: torch.dtype) -> BlockMover:
    """Copies of KV blocks; a block of one layer holds `block_values` keys in `dtype`, and as many values."""
    fits = whole_words(block_values, dtype)
    return TritonMover() if family(device) is Family.TRITON and fits else TorchMover()
