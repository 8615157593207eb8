"""What a machine's memory holds: weights, room for steps, and KV blocks in what is left."""

import math
from collections.abc import Mapping

import msgspec

from ...engine.errors import UsageError
from ...engine.models.config import ModelConfig
from ...engine.models.weights import required_shapes
from ...engine.opening import GPU_RESERVE_BYTES, MAX_SEQUENCES

LOGIT_BYTES = 4


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one machine. `kv_bytes` is what the blocks may take, `num_blocks` each model's, the trash
    block included; `block_bytes` is one block of each."""

    weights_bytes: int
    step_bytes: int
    kv_bytes: int
    block_bytes: dict[str, int]
    num_blocks: int


def plan_memory(
    configs: Mapping[str, ModelConfig],
    memory_bytes: int,
    *,
    element_bytes: int,
    block_size: int,
    max_step_tokens: int,
    longest: int,
    kv_memory: int | None = None,
) -> Memory:
    """Split `memory_bytes` as an engine does: all weights, the largest step of any model, a reserve, and KV
    in the rest, or in `kv_memory` bytes of it. `longest`: positions of the longest sequence. `UsageError`
    where the models do not fit."""
    weights = sum(weight_elements(config) for config in configs.values()) * element_bytes
    step = max(step_bytes(config, max_step_tokens, element_bytes) for config in configs.values())
    left = memory_bytes - weights - step - GPU_RESERVE_BYTES
    kv = left if kv_memory is None else kv_memory
    each = {role: block_size * kv_position_bytes(config, element_bytes) for role, config in configs.items()}
    block = sum(each.values())
    if kv > left or kv < 2 * block:
        raise UsageError(
            f"{memory_bytes / 1e9:.3g} GB of memory do not hold {weights / 1e9:.3g} GB of weights, "
            f"{(step + GPU_RESERVE_BYTES) / 1e9:.3g} GB for steps and "
            f"{max(kv, 2 * block) / 1e9:.3g} GB of KV: take a larger machine, a smaller model or less KV"
        )
    blocks = min(kv // block, math.ceil(longest / block_size) * MAX_SEQUENCES + 1)
    return Memory(weights_bytes=weights, step_bytes=step, kv_bytes=kv, block_bytes=each, num_blocks=blocks)


def weight_elements(config: ModelConfig) -> int:
    """Parameters, a tied head counted once."""
    shapes = required_shapes(config)
    tied = config.tied_head and not config.head.labels
    return sum(math.prod(shape) for name, shape in shapes.items() if not (tied and name == "lm_head.weight"))


def kv_position_bytes(config: ModelConfig, element_bytes: int) -> int:
    """Keys and values of one position in all layers."""
    return 2 * config.layers * config.kv_heads * config.head_dim * element_bytes


def step_bytes(config: ModelConfig, rows: int, element_bytes: int) -> int:
    """Memory of a pass over `rows` rows: hidden states twice, gate, up and their product, queries, keys and
    values; logits of every row that may be drawn from."""
    width = (2 * config.heads + 2 * config.kv_heads) * config.head_dim
    activations = rows * (2 * config.hidden + 3 * config.intermediate + width) * element_bytes
    return activations + min(rows, MAX_SEQUENCES) * config.head_columns * LOGIT_BYTES
