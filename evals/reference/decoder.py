"""A lean Llama decoder for training and batched sampling; parameter names are those of transformers.

Shapes: B sequences, T positions, H heads of D dimensions, E hidden size. Parameters are fp32; matrix products
run in `compute_dtype` (bf16 where the CPU multiplies it natively), the residual stream and norms in fp32.
"""

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from .vocabulary import VOCABULARY_SIZE

MAX_POSITIONS = 512
ROPE_THETA = 10_000.0
NORM_EPSILON = 1e-6
CACHE_GROWTH = 32


class DecoderConfig(msgspec.Struct, frozen=True):
    """Sizes of a reference model; `head_size * num_heads` need not be `hidden_size`."""

    hidden_size: int
    num_layers: int
    num_heads: int
    head_size: int
    intermediate_size: int


POLICY_CONFIG = DecoderConfig(128, 4, 4, 32, 352)
DRAFT_CONFIG = DecoderConfig(64, 2, 2, 32, 176)


class KeyValueCache:
    """Keys and values of every layer, [L, 2, B, H, capacity, D]; the capacity grows with what is written."""

    def __init__(self, config: DecoderConfig, batch_size: int, dtype: torch.dtype) -> None:
        shape = (config.num_layers, 2, batch_size, config.num_heads, CACHE_GROWTH, config.head_size)
        self.store = torch.zeros(shape, dtype=dtype)
        self.length = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values [B, H, T, D] of a layer and return all of them so far."""
        end = self.length + keys.shape[2]
        while end > self.store.shape[4]:
            self.store = functional.pad(self.store, (0, 0, 0, CACHE_GROWTH))
        self.store[layer, 0, :, :, self.length : end] = keys
        self.store[layer, 1, :, :, self.length : end] = values
        return self.store[layer, 0, :, :, :end], self.store[layer, 1, :, :, :end]

    def repeat(self, count: int) -> None:
        """Copy each sequence `count` times, neighbours together."""
        self.store = self.store.repeat_interleave(count, dim=2)

    def keep(self, rows: Tensor) -> None:
        """Drop the sequences where `rows` [B] is false."""
        self.store = self.store[:, :, rows]


class RMSNorm(nn.Module):
    """Root-mean-square norm with a gain (Zhang and Sennrich 2019)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.rms_norm(hidden, (hidden.shape[-1],), self.weight, NORM_EPSILON)


def _linear(in_size: int, out_size: int) -> nn.Linear:
    return nn.Linear(in_size, out_size, bias=False)


class Attention(nn.Module):
    """Causal self-attention with rotary positions (Su et al. 2021; halves rotated, as transformers does)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.num_heads, self.head_size = config.num_heads, config.head_size
        width = config.num_heads * config.head_size
        self.q_proj = _linear(config.hidden_size, width)
        self.k_proj = _linear(config.hidden_size, width)
        self.v_proj = _linear(config.hidden_size, width)
        self.o_proj = _linear(width, config.hidden_size)

    def forward(
        self, hidden: Tensor, rotation: tuple[Tensor, Tensor], cache: KeyValueCache | None, layer: int
    ) -> Tensor:
        batch, length, _ = hidden.shape
        merged = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight]).to(hidden.dtype)
        qkv = functional.linear(hidden, merged).view(batch, length, 3, self.num_heads, self.head_size)
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4)
        queries, keys = _rotate(queries, rotation), _rotate(keys, rotation)
        if cache is not None:
            keys, values = cache.extend(layer, keys, values)
        attended = _attend(queries, keys, values)
        attended = attended.transpose(1, 2).reshape(batch, length, -1)
        return functional.linear(attended, self.o_proj.weight.to(hidden.dtype))


def _rotate(vectors: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = rotation
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


def _attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of the last positions; with gradients by plain products: quicker backwards."""
    num_queries, num_keys = queries.shape[2], keys.shape[2]
    if num_queries == num_keys > 1 and not torch.is_grad_enabled():
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    scores = (queries @ keys.mT).float() * queries.shape[-1] ** -0.5
    if num_queries > 1:
        future = torch.ones(num_queries, num_keys, dtype=torch.bool).triu(num_keys - num_queries + 1)
        scores = scores.masked_fill(future, -torch.inf)
    return scores.softmax(dim=-1).to(values.dtype) @ values


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = _linear(config.hidden_size, config.intermediate_size)
        self.up_proj = _linear(config.hidden_size, config.intermediate_size)
        self.down_proj = _linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        merged = torch.cat([self.gate_proj.weight, self.up_proj.weight]).to(hidden.dtype)
        gate, up = functional.linear(hidden, merged).chunk(2, dim=-1)
        return functional.linear(functional.silu(gate) * up, self.down_proj.weight.to(hidden.dtype))


class Layer(nn.Module):
    """Pre-norm attention and feed-forward, each added to the fp32 residual stream."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size)
        self.mlp = FeedForward(config)

    def forward(
        self,
        hidden: Tensor,
        rotation: tuple[Tensor, Tensor],
        dtype: torch.dtype,
        cache: KeyValueCache | None,
        layer: int,
    ) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden).to(dtype), rotation, cache, layer)
        return hidden + self.mlp(self.post_attention_layernorm(hidden).to(dtype))


class Backbone(nn.Module):
    """Embedding, layers and the final norm: token ids [B, T] to hidden states [B, T, E] in fp32."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY_SIZE, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size)
        half = torch.arange(0, config.head_size, 2, dtype=torch.float32)
        angles = torch.outer(torch.arange(MAX_POSITIONS), ROPE_THETA ** (-half / config.head_size))
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, token_ids: Tensor, dtype: torch.dtype, cache: KeyValueCache | None = None) -> Tensor:
        start = cache.length if cache is not None else 0
        span = slice(start, start + token_ids.shape[1])
        rotation = (self.cosines[span].to(dtype), self.sines[span].to(dtype))
        hidden = self.embed_tokens(token_ids)
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, rotation, dtype, cache, index)
        if cache is not None:
            cache.length = span.stop
        return self.norm(hidden)


class Decoder(nn.Module):
    """The language model: logits [B, T, V] in fp32, with tied embeddings."""

    def __init__(self, config: DecoderConfig, compute_dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype = compute_dtype
        self.model = Backbone(config)
        initialise(self)

    def forward(self, token_ids: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        hidden = self.model(token_ids, self.compute_dtype, cache).to(self.compute_dtype)
        return functional.linear(hidden, self.model.embed_tokens.weight.to(self.compute_dtype)).float()


class RewardModel(nn.Module):
    """The process reward model: a logit at each position [B, T] in fp32, through a linear head."""

    def __init__(self, config: DecoderConfig, compute_dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype = compute_dtype
        self.model = Backbone(config)
        self.score = _linear(config.hidden_size, 1)
        self.score.bias = nn.Parameter(torch.zeros(1))
        initialise(self)

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.score(self.model(token_ids, self.compute_dtype)).squeeze(-1)


def initialise(module: nn.Module) -> None:
    """Normal weights of deviation 1/sqrt(fan in); the maps back into the residual stream start at 0."""
    for name, parameter in module.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.zeros_(parameter)
        elif name.endswith("embed_tokens.weight"):
            nn.init.normal_(parameter, std=0.05)
        elif parameter.ndim == 2:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)


def native_dtype() -> torch.dtype:
    """bf16 where the CPU has bf16 dot products, otherwise fp32."""
    capable = torch.backends.cpu.get_cpu_capability().startswith("AVX512") and _has_bf16()
    return torch.bfloat16 if capable else torch.float32


def _has_bf16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def num_parameters(module: nn.Module) -> int:
    """Number of trained values; tied embeddings count once."""
    return sum(parameter.numel() for parameter in module.parameters())
