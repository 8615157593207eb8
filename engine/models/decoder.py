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

from ...kernels.dispatch import make_elementwise, make_linear
from ...kernels.interface import Attention
from ...kernels.linear import Product
from ...kernels.scratch import Scratch
from .config import ModelConfig
from .fused import FusedRows, fused_rows
from .head import read_head
from .rope import rotation_table
from .step_model import AttentionShape, Batch


@dataclass(slots=True)
class _Layer:
    window: int | None
    attention_norm: Tensor
    qkv: Product
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product


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
        heads = config.heads, config.kv_heads
        self._elementwise = make_elementwise(*heads, config.head_dim, dtype, device)
        self._attended = torch.empty(0)
        self._scratch = Scratch(device)
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

    @property
    def fixed_memory(self) -> bool:
        return True

    @property
    def needs_row_tile(self) -> bool:
        return any(layer.qkv.needs_row_tile or layer.down.needs_row_tile for layer in self._layers)

    def _take(self, name: str) -> Tensor:
        return self._tensors[name].to(self.device, self.dtype).contiguous()

    def _maybe(self, name: str) -> Tensor | None:
        return self._take(name) if name in self._tensors else None

    def _merged(self, prefix: str, names: tuple[str, ...]) -> Product:
        """One product out of several with the same input; a missing bias beside a present one is zero."""
        weights = [self._take(f"{prefix}{name}.weight") for name in names]
        biases = [self._maybe(f"{prefix}{name}.bias") for name in names]
        if all(bias is None for bias in biases):
            return make_linear(torch.cat(weights))
        filled = [
            weight.new_zeros(weight.shape[0]) if bias is None else bias
            for weight, bias in zip(weights, biases, strict=True)
        ]
        return make_linear(torch.cat(weights), torch.cat(filled))

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
        elementwise, eps = self._elementwise, self.config.rms_eps
        rows = batch.slots.numel() // (2 * self.config.kv_heads)
        rotation = elementwise.rotation(
            self._cosine, self._sine, batch.positions, batch.slots, eps, grouped=attention.grouped
        )
        width = self.config.heads * self.config.head_dim
        if self._attended.shape[0] < hidden.shape[0]:
            self._attended = hidden.new_zeros((hidden.shape[0], width))
        attended = self._attended[: hidden.shape[0]]
        fixed = batch.row_tile is not None
        normed = elementwise.norm(hidden, self._layers[0].attention_norm, eps)
        for layer, following, pool in zip(self._layers, (*self._layers[1:], None), kv, strict=True):
            qkv = layer.qkv(normed, batch.row_tile, self._scratch).view(
                normed.shape[0], -1, self.config.head_dim
            )
            elementwise.rotate(qkv, layer.query_norm, layer.key_norm, pool, rotation)
            query = qkv[:rows, : self.config.heads]
            attention.run(query, pool, batch.plans[layer.window], attended)
            hidden, normed = elementwise.join(
                layer.output, attended, hidden, layer.mlp_norm, eps, batch.row_tile
            )
            gated = elementwise.gate(layer.gate_up(normed, batch.row_tile, self._scratch), fixed=fixed)
            if following is None:
                return layer.down.added(gated, hidden, batch.row_tile)
            hidden, normed = elementwise.join(
                layer.down, gated, hidden, following.attention_norm, eps, batch.row_tile
            )
        return hidden

    @property
    def fused_head(self) -> FusedRows | None:
        return fused_rows(self._head, self._normed)

    def head(self, hidden: Tensor, row_tile: int | None) -> Tensor:
        """Logits (or label values) fp32 [rows, columns] of `hidden` [rows, hidden] as `forward` returned
        them; the next call may overwrite them."""
        rows = hidden.shape[0]
        if row_tile is not None and rows % row_tile:
            hidden = functional.pad(hidden, (0, 0, 0, -rows % row_tile))
        return self._head.wide(self._normed(hidden), row_tile)[:rows]

    def _normed(self, hidden: Tensor) -> Tensor:
        """`hidden` [rows, hidden] as the head takes it; the next call may overwrite it."""
        return self._elementwise.norm(hidden, self._norm, self.config.rms_eps)
