"""The decoder of the Llama family on packed rows: Llama, Mistral, Qwen2, Qwen3 and what shares their form.

Rows of all sequences lie one after the other; only attention knows which belong together. q, k and v are one
product, gate and up another; the output head runs only for the rows that ask. Norms compute in fp32 as
transformers' do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ...kernels.interface import Attention
from ...kernels.linear import Linear
from .config import ModelConfig
from .head import read_head
from .rope import rotation_table
from .step_model import AttentionShape, Batch


@dataclass(slots=True)
class _Layer:
    window: int | None
    attention_norm: Tensor
    qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """Weights of one model in the form that a step uses."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
        positions: int,
    ) -> None:
        """From checked `tensors` under transformers' names; `positions` is the longest sequence it will
        see."""
        self.config = config
        self.dtype = dtype
        self.device = device
        self._tensors = tensors
        self._embedding = self._take("model.embed_tokens.weight")
        self._layers = [self._layer(index) for index in range(config.layers)]
        self._norm = self._take("model.norm.weight")
        self._head = read_head(config, self._embedding, self._take, self._maybe)
        cosine, sine = rotation_table(config.rope, positions)
        self._cosine = torch.cat((cosine, cosine), -1).to(device, dtype)
        self._sine = torch.cat((-sine, sine), -1).to(device, dtype)
        self._attended = torch.empty(0)
        self._tensors = {}

    @property
    def shape(self) -> AttentionShape:
        return self.config.attention

    @property
    def columns(self) -> int:
        return self.config.head_columns

    @property
    def fixed_rows(self) -> bool:
        return True

    def _take(self, name: str) -> Tensor:
        return self._tensors[name].to(self.device, self.dtype).contiguous()

    def _maybe(self, name: str) -> Tensor | None:
        return self._take(name) if name in self._tensors else None

    def _merged(self, prefix: str, names: tuple[str, ...]) -> Linear:
        """One product out of several with the same input; a missing bias beside a present one is zero."""
        weights = [self._take(f"{prefix}{name}.weight") for name in names]
        biases = [self._maybe(f"{prefix}{name}.bias") for name in names]
        if all(bias is None for bias in biases):
            return Linear(torch.cat(weights))
        filled = [
            weight.new_zeros(weight.shape[0]) if bias is None else bias
            for weight, bias in zip(weights, biases, strict=True)
        ]
        return Linear(torch.cat(weights), torch.cat(filled))

    def _layer(self, index: int) -> _Layer:
        prefix = f"model.layers.{index}."
        attention = prefix + "self_attn."
        return _Layer(
            window=self.config.windows[index],
            attention_norm=self._take(prefix + "input_layernorm.weight"),
            qkv=self._merged(attention, ("q_proj", "k_proj", "v_proj")),
            query_norm=self._take(attention + "q_norm.weight") if self.config.qk_norm else None,
            key_norm=self._take(attention + "k_norm.weight") if self.config.qk_norm else None,
            output=self._merged(attention, ("o_proj",)),
            mlp_norm=self._take(prefix + "post_attention_layernorm.weight"),
            gate_up=self._merged(prefix + "mlp.", ("gate_proj", "up_proj")),
            down=self._merged(prefix + "mlp.", ("down_proj",)),
        )

    def forward(self, batch: Batch, kv: Tensor, attention: Attention) -> Tensor:
        """Hidden states [rows, hidden] before the last norm; writes keys and values into `kv`
        [layers, 2, blocks, kv_heads, block_size, head_dim]."""
        hidden = self._embedding.index_select(0, batch.tokens)
        cosine = self._cosine.index_select(0, batch.positions)[:, None]
        sine = self._sine.index_select(0, batch.positions)[:, None]
        width = self.config.heads * self.config.head_dim
        if self._attended.shape[0] < hidden.shape[0]:
            self._attended = hidden.new_zeros((hidden.shape[0], width))
        attended = self._attended[: hidden.shape[0]]
        for layer, pool in zip(self._layers, kv, strict=True):
            normed = self._normed(hidden, layer.attention_norm)
            query = self._project(layer, normed, cosine, sine, pool, batch)
            attention.run(query, pool, batch.plans[layer.window], attended)
            hidden = layer.output.added(attended, hidden, batch.row_tile)
            normed = self._normed(hidden, layer.mlp_norm)
            gate_up = layer.gate_up(normed, batch.row_tile)
            hidden = layer.down.added(self._activated(gate_up, batch), hidden, batch.row_tile)
        return hidden

    def head(self, hidden: Tensor, row_tile: int | None) -> Tensor:
        """Logits (or label values) fp32 [rows, columns] of `hidden` [rows, hidden] as `forward` returned
        them."""
        rows = hidden.shape[0]
        if row_tile is not None and rows % row_tile:
            hidden = functional.pad(hidden, (0, 0, 0, -rows % row_tile))
        return self._head(self._normed(hidden, self._norm), row_tile)[:rows].float()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.config.rms_eps)

    def _project(
        self, layer: _Layer, normed: Tensor, cosine: Tensor, sine: Tensor, pool: Tensor, batch: Batch
    ) -> Tensor:
        """Rotated queries [rows, heads, head_dim]; keys and values go to the pool."""
        config = self.config
        qkv = layer.qkv(normed, batch.row_tile).view(normed.shape[0], -1, config.head_dim)
        rotated = qkv[:, : config.heads + config.kv_heads]
        if layer.query_norm is not None and layer.key_norm is not None:
            rotated[:, : config.heads] = self._normed(rotated[:, : config.heads], layer.query_norm)
            rotated[:, config.heads :] = self._normed(rotated[:, config.heads :], layer.key_norm)
        turned = torch.roll(rotated, config.head_dim // 2, -1)
        torch.addcmul(rotated * cosine, turned, sine, out=rotated)
        rows = batch.slots.numel() // (2 * config.kv_heads)
        pool.view(-1, config.head_dim).index_copy_(
            0, batch.slots, qkv[:rows, config.heads :].reshape(-1, config.head_dim)
        )
        return qkv[:rows, : config.heads]

    def _activated(self, gate_up: Tensor, batch: Batch) -> Tensor:
        """`silu(gate) * up`. With fixed rows silu is spelled out: torch's own rounds differently in the tail
        of a vector."""
        gate, up = gate_up.chunk(2, -1)
        if batch.row_tile is None:
            return functional.silu(gate).mul_(up)
        return torch.div(gate, torch.neg(gate).exp_().add_(1.0)).mul_(up)
