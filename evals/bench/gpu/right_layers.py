"""Whether norms, gate, rotation, block moves and the fixed product are right."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ....kernels.bounds import Shape
from ....kernels.gpu.blocks import clear_blocks, copy_blocks
from ....kernels.gpu.gate import gate_rows
from ....kernels.gpu.matmul import multiply
from ....kernels.gpu.norm import add_and_norm_rows, norm_rows
from ....kernels.gpu.rotary import rotate_and_store
from ....kernels.plain import blocks as plain_blocks
from ....kernels.plain import elementwise as plain
from .rows import Row, checked, held
from .setting import TOLERANCE, Setting, relative_error

SECTION = "layers are right"
EPS = 1e-5


def rows(setting: Setting) -> Iterator[Row]:
    """At the model's widths, against float64."""
    for shape, dtype, kind in setting.kinds:
        yield from _norms(setting, shape, dtype, kind)
        yield from _rotation(setting, shape, dtype, kind)
        yield from _products(setting, shape, dtype, kind)
        yield from _blocks(setting, shape, dtype, kind)


def _norms(setting: Setting, shape: Shape, dtype: torch.dtype, kind: str) -> Iterator[Row]:
    count, tolerance = setting.sizes.decode + 1, TOLERANCE[dtype]
    x = setting.normal(count, shape.hidden, dtype=dtype)
    residual = setting.normal(count, shape.hidden, dtype=dtype, deviation=2.0)
    weight = 1 + setting.normal(shape.hidden, dtype=dtype, deviation=0.1)
    told = f"{kind} [{count}, {shape.hidden}]"
    out = torch.empty_like(x)
    error = relative_error(
        norm_rows(x, weight, EPS, out), plain.norm_rows(x, weight, EPS, inside=torch.float64)
    )
    yield checked(SECTION, "norm", error, tolerance, shape=told)
    total, normed = plain.add_and_norm_rows(x, residual, weight, EPS, inside=torch.float64)
    add_and_norm_rows(x, residual, weight, EPS, out)
    error = max(relative_error(residual, total), relative_error(out, normed))
    yield checked(SECTION, "rmsnorm_residual", error, tolerance, shape=told)
    both = setting.normal(count, 2 * shape.intermediate, dtype=dtype)
    gated = torch.empty(count, shape.intermediate, dtype=dtype, device=setting.device)
    error = relative_error(gate_rows(both, gated), plain.gate_rows(both, inside=torch.float64))
    yield checked(SECTION, "silu_mul", error, tolerance, shape=f"{kind} [{count}, {shape.intermediate}]")


def rotation_tables(setting: Setting, shape: Shape, positions: int, dtype: torch.dtype) -> list[Tensor]:
    """Cosines and sines [positions, head_dim], the first half of sines negated."""
    half = shape.head_dim // 2
    speeds = 500_000.0 ** -(torch.arange(half, device=setting.device) / half)
    angles = torch.arange(positions, device=setting.device)[:, None] * speeds
    cosine, sine = angles.cos(), angles.sin()
    return [torch.cat(parts, -1).to(dtype) for parts in ((cosine, cosine), (-sine, sine))]


def slots_for(setting: Setting, shape: Shape, count: int, size: int, blocks: int) -> Tensor:
    """Where keys and values of `count` rows go, int64 [count * 2 * kv_heads]: each row to a place of its own
    in the pool's blocks behind the first."""
    place = torch.arange(count, device=setting.device)
    block, offset = 1 + place // size, place % size
    heads = torch.arange(2 * shape.kv_heads, device=setting.device)
    plane = heads // shape.kv_heads * (blocks * shape.kv_heads) + heads % shape.kv_heads
    return ((block[:, None] * shape.kv_heads + plane) * size + offset[:, None]).reshape(-1)


def _rotation(setting: Setting, shape: Shape, dtype: torch.dtype, kind: str) -> Iterator[Row]:
    count, size = setting.sizes.decode + 1, setting.sizes.page
    blocks = 2 + -(-count // size)
    cosine, sine = rotation_tables(setting, shape, 4 * count, dtype)
    positions = setting.integers(4 * count, count)
    slots = slots_for(setting, shape, count, size, blocks)
    slots[: 2 * shape.kv_heads] = -1
    qkv = setting.normal(count, shape.heads + 2 * shape.kv_heads, shape.head_dim, dtype=dtype)
    pool = torch.zeros(2, blocks, shape.kv_heads, size, shape.head_dim, dtype=dtype, device=setting.device)
    weights = [1 + setting.normal(shape.head_dim, dtype=dtype, deviation=0.1) for _ in range(2)]
    told = f"{kind} {shape.heads}/{shape.kv_heads}x{shape.head_dim}, {count} rows"
    for norms in (None, (weights[0], weights[1])):
        found, expected = ((qkv.clone(), pool.clone()) for _ in range(2))
        arguments = cosine, sine, positions, slots, norms, EPS
        rotate_and_store(found[0], *arguments, found[1], shape.heads)
        plain.rotate_and_store(expected[0], *arguments, expected[1], shape.heads, inside=torch.float64)
        queries = (pair[0][:, : shape.heads] for pair in (found, expected))
        error = max(relative_error(*queries), relative_error(found[1], expected[1]))
        name = "rope_kv_write" if norms is None else "rope_kv_write with norms"
        yield checked(SECTION, name, error, TOLERANCE[dtype], shape=told)


def products(shape: Shape) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of a layer's products, as the decoder merges them."""
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "qkv": (width + 2 * kv_width, shape.hidden),
        "out": (shape.hidden, width),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }


def _products(setting: Setting, shape: Shape, dtype: torch.dtype, kind: str) -> Iterator[Row]:
    count = setting.sizes.decode + 1
    for name, (outputs, inputs) in products(shape).items():
        x = setting.normal(count, inputs, dtype=dtype)
        weight = setting.normal(outputs, inputs, dtype=dtype, deviation=inputs**-0.5)
        bias, residual = setting.normal(outputs, dtype=dtype), setting.normal(count, outputs, dtype=dtype)
        out = torch.empty_like(residual)
        multiply(x, weight, bias, residual, out)
        expected = x.double() @ weight.double().T + bias.double() + residual.double()
        told = f"{kind} [{count}, {inputs}] x [{outputs}]"
        yield checked(SECTION, f"matmul {name}", relative_error(out, expected), TOLERANCE[dtype], shape=told)
        single = torch.empty_like(out[:1])
        multiply(x[:1], weight, bias, residual[:1].contiguous(), single)
        yield held(SECTION, f"matmul {name}: a row alone", torch.equal(single, out[:1]), shape=told)


def _blocks(setting: Setting, shape: Shape, dtype: torch.dtype, kind: str) -> Iterator[Row]:
    size, count = setting.sizes.page, min(setting.sizes.blocks, 16)
    pool = setting.normal(2, 2, 2 * count + 1, shape.kv_heads, size, shape.head_dim, dtype=dtype)
    order = torch.arange(1, count + 1, device=setting.device)
    targets = order.flip(0) + count
    targets[0] = -1
    expected = pool.clone()
    plain_blocks.copy_blocks(expected, order, targets)
    copy_blocks(pool, order, targets)
    told = f"{kind} {count} blocks of {size}"
    yield held(SECTION, "copy_blocks", torch.equal(pool, expected), shape=told)
    plain_blocks.clear_blocks(expected, targets)
    clear_blocks(pool, targets)
    yield held(SECTION, "clear_blocks", torch.equal(pool, expected), shape=told)
