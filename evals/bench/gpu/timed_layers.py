"""How long norms, gate, rotation, block copies and the fixed product take, against their bounds."""

from collections.abc import Iterator

import torch
from torch.nn.functional import linear

from ....kernels import bounds
from ....kernels.gpu.blocks import copy_blocks
from ....kernels.gpu.gate import gate_rows
from ....kernels.gpu.matmul import multiply
from ....kernels.gpu.norm import add_and_norm_rows
from ....kernels.gpu.rotary import rotate_and_store
from .right_layers import EPS, products, rotation_tables, slots_for
from .rows import Goal, Row, rated, timed
from .setting import Setting

SECTION = "layers"


def rows(setting: Setting) -> Iterator[Row]:
    """At prefill and decode sizes; goals stand for prefill, where memory is what they wait for."""
    sizes = setting.sizes
    for count in (sizes.many, sizes.prefill):
        large = count == sizes.prefill and sizes.full
        yield _norm(setting, count, Goal(78) if large else None)
        yield _gate(setting, count, Goal(193) if large else None)
        rope = Goal(62) if large else Goal(6) if sizes.full else None
        yield _rotation(setting, count, rope)
    yield _copy(setting, Goal(0.85, at_least=True, of_bound=True) if sizes.full else None)
    for name, (outputs, inputs) in products(sizes.shape).items():
        yield from _product(setting, name, outputs, inputs)


def _norm(setting: Setting, count: int, goal: Goal | None) -> Row:
    shape = setting.sizes.shape
    x, residual = setting.normal(count, shape.hidden), setting.normal(count, shape.hidden)
    weight, out = setting.normal(shape.hidden), torch.empty_like(x)
    x.mul_(1e-3)  # the residual grows with each repeat
    seconds = setting.timer.seconds(lambda: add_and_norm_rows(x, residual, weight, EPS, out))
    bound = bounds.rmsnorm_residual(shape, count).seconds(setting.machine)
    return timed(SECTION, "rmsnorm_residual", seconds, bound, shape=f"[{count}, {shape.hidden}]", goal=goal)


def _gate(setting: Setting, count: int, goal: Goal | None) -> Row:
    shape = setting.sizes.shape
    both = setting.normal(count, 2 * shape.intermediate)
    out = torch.empty(count, shape.intermediate, dtype=setting.dtype, device=setting.device)
    seconds = setting.timer.seconds(lambda: gate_rows(both, out))
    bound = bounds.silu_mul(shape, count).seconds(setting.machine)
    return timed(SECTION, "silu_mul", seconds, bound, shape=f"[{count}, {shape.intermediate}]", goal=goal)


def _rotation(setting: Setting, count: int, goal: Goal | None) -> Row:
    shape, size = setting.sizes.shape, setting.sizes.page
    blocks = 2 + -(-count // size)
    cosine, sine = rotation_tables(setting, shape, count, setting.dtype)
    positions = torch.arange(count, device=setting.device)
    slots = slots_for(setting, shape, count, size, blocks)
    qkv = setting.normal(count, shape.heads + 2 * shape.kv_heads, shape.head_dim)
    pool = setting.normal(2, blocks, shape.kv_heads, size, shape.head_dim)

    def work() -> None:
        rotate_and_store(qkv, cosine, sine, positions, slots, None, EPS, pool, shape.heads)

    bound = bounds.rope_kv_write(shape, count).seconds(setting.machine)
    told = f"{count} rows, {shape.heads}/{shape.kv_heads}x{shape.head_dim}"
    return timed(SECTION, "rope_kv_write", setting.timer.seconds(work), bound, shape=told, goal=goal)


def _copy(setting: Setting, goal: Goal | None) -> Row:
    """Blocks of all layers, as a fork in the middle of a block copies them."""
    shape, size, count = setting.sizes.shape, setting.sizes.page, setting.sizes.blocks
    sizes = (shape.layers, 2, 2 * count + 1, shape.kv_heads, size, shape.head_dim)
    pool = torch.zeros(sizes, dtype=setting.dtype, device=setting.device)
    sources = torch.arange(1, count + 1, device=setting.device)
    targets = sources + count
    seconds = setting.timer.seconds(lambda: copy_blocks(pool, sources, targets))
    bound = bounds.copy_blocks(shape, count, size).seconds(setting.machine)
    told = f"{count} blocks of {size}, {shape.layers} layers"
    return timed(SECTION, "copy_blocks", seconds, bound, shape=told, goal=goal)


def _product(setting: Setting, name: str, outputs: int, inputs: int) -> Iterator[Row]:
    """The fixed product beside the library's, at a decode step's rows."""
    count = setting.sizes.decode
    x = setting.normal(count, inputs)
    weight = setting.normal(outputs, inputs, deviation=inputs**-0.5)
    out = torch.empty(count, outputs, dtype=setting.dtype, device=setting.device)
    bound = bounds.matmul(count, inputs, outputs, setting.dtype.itemsize).seconds(setting.machine)
    told = f"[{count}, {inputs}] x [{outputs}]"
    ours = setting.timer.seconds(lambda: multiply(x, weight, None, None, out))
    library = setting.timer.seconds(lambda: linear(x, weight))
    yield timed(SECTION, f"matmul {name}", ours, bound, shape=told)
    yield timed(SECTION, f"torch {name}", library, bound, shape=told)
    goal = Goal(0.7, at_least=True) if setting.sizes.full else None
    yield rated(SECTION, f"matmul {name}: of torch's speed", "x", library / ours, shape=told, goal=goal)
