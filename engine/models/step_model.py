"""What the runner needs of a model: attention's shape, a pass over packed rows, a head on chosen ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from ...kernels.interface import Attention
from ..protocol import ModelCost
from .fused import FusedRows


class AttentionShape(msgspec.Struct, frozen=True, kw_only=True):
    """Attention of every layer. `head_dim` is the width of a key; `windows` holds one entry per layer: the
    sliding window in positions, or None for full attention. Scores are `scale * q.k`, then squashed to
    `softcap * tanh(scores / softcap)` where there is a softcap."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    windows: tuple[int | None, ...]
    softcap: float | None = None


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the floors above ask of a model; `max_position` is its trained context in positions."""

    vocab_size: int
    max_position: int
    cost: ModelCost
    is_reward: bool
    eos_ids: tuple[int, ...] = ()


@dataclass(slots=True)
class Batch:
    """The rows of one step, already on the model's device.

    `tokens`, `positions` int64 [rows]; `slots` int64 [2 * kv_heads * rows']: where keys and values of the
    first `rows'` rows go in a layer's flattened pool [2 * blocks * kv_heads * block_size, head_dim]. `plans`
    holds one prepared plan per sliding window of the model. `row_tile` is the fixed row count of every
    product, None for none; rows are then padded to a multiple of it, and the padding is neither attended to
    nor stored.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    plans: Mapping[int | None, Any]
    row_tile: int | None


class StepModel(Protocol):
    """A model with its weights. `columns` is the width of what `head` returns; `fixed_rows` whether it can
    serve the deterministic mode, and `needs_row_tile` whether its products must then have a fixed number of
    rows; `fixed_memory` whether a pass can be recorded: all memory that it keeps from pass to pass stays
    where it is, once the largest pass was run."""

    dtype: torch.dtype
    device: torch.device

    @property
    def shape(self) -> AttentionShape: ...

    @property
    def columns(self) -> int: ...

    @property
    def fixed_rows(self) -> bool: ...

    @property
    def needs_row_tile(self) -> bool: ...

    @property
    def fixed_memory(self) -> bool: ...

    @property
    def fused_head(self) -> FusedRows | None:
        """The head without logits, where there is one."""
        ...

    def forward(self, batch: Batch, kv: Tensor, attention: Attention) -> Tensor:
        """Hidden states [rows, hidden] as `head` takes them; writes keys and values into `kv` [layers, 2,
        blocks, kv_heads, block_size, head_dim]."""
        ...

    def head(self, hidden: Tensor, row_tile: int | None) -> Tensor:
        """Logits or label values fp32 [rows, columns] of `hidden` [rows, hidden]."""
        ...
