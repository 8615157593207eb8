"""The attention function that transformers' models call, and what they must hand to it.

A model that was switched to `ATTENTION` calls `attend` of the object that its caller passed as `paged`: no
global state, no mask, no cache of transformers.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from ...kernels.interface import Attention
from ..errors import ModelLoadError
from .step_model import Batch

ATTENTION = "branchwise_paged"
"""The name under which `transformers.AttentionInterface` finds `paged_attention`."""

_UNSUPPORTED = {
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "a position bias",
    "alibi": "a position bias",
    "head_mask": "a head mask",
    "block_mask": "a block mask",
}


class LayerCall(NamedTuple):
    """One layer's attention: `query` [1, heads, rows, head_dim], `key` [1, kv_heads, rows, head_dim], `value`
    [1, kv_heads, rows, value_dim], already rotated; keys out of `window` positions are not seen."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    window: int | None
    softcap: float | None


class Attender(Protocol):
    """Takes the calls of all layers of one forward pass, in order."""

    def attend(self, call: LayerCall) -> Tensor:
        """The attended values [1, rows, heads, value_dim]."""
        ...


def paged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    paged: Attender | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The function that transformers registers; `ModelLoadError` for a kind of attention that it is not."""
    if paged is None:
        raise ModelLoadError("its attention layers do not pass on what their caller gives them")
    for name, kind in _UNSUPPORTED.items():
        if others.get(name) is not None:
            raise ModelLoadError(f"its attention has {kind}")
    if attention_mask is not None:
        raise ModelLoadError("its attention layers bring a mask of their own")
    if getattr(module, "is_causal", True) is False:
        raise ModelLoadError("its attention is not causal")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return paged.attend(LayerCall(query, key, value, scale, sliding_window, softcap)), None


def register() -> None:
    """Make `ATTENTION` known to transformers; again does nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, paged_attention)


class StepAttention:
    """An `Attender` for one step: keys and values go to the pool, queries attend to it."""

    def __init__(
        self, windows: tuple[int | None, ...], batch: Batch, kv: Tensor, attention: Attention
    ) -> None:
        """`kv` is [layers, 2, blocks, kv_heads, block_size, head_dim]."""
        self._windows = windows
        self._batch = batch
        self._kv = kv
        self._attention = attention
        self._layer = 0

    def attend(self, call: LayerCall) -> Tensor:
        pool, window = self._kv[self._layer], self._windows[self._layer]
        self._layer += 1
        head_dim, value_dim = call.key.shape[-1], call.value.shape[-1]
        value = functional.pad(call.value, (0, head_dim - value_dim)) if value_dim < head_dim else call.value
        written = torch.cat((call.key[0], value[0])).transpose(0, 1)
        self._attention.store(written, self._batch.slots, pool)
        query = call.query[0].transpose(0, 1).contiguous()
        rows, heads = query.shape[:2]
        out = query.new_empty((rows, heads * head_dim))
        self._attention.run(query, pool, self._batch.plans[window], out)
        return out.view(1, rows, heads, head_dim)[..., :value_dim].contiguous()


class Observer:
    """An `Attender` that learns the shape of every layer and attends to nothing."""

    def __init__(self) -> None:
        self.calls: list[LayerCall] = []

    def attend(self, call: LayerCall) -> Tensor:
        self.calls.append(call)
        query, value = call.query, call.value
        return query.new_zeros((1, query.shape[2], query.shape[1], value.shape[-1]))
