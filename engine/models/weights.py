"""Tensors of a model by name, checked against what the configuration demands."""

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ..errors import ModelLoadError
from .config import HeadKind, ModelConfig

LAYER_BIASES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def required_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that the model cannot do without, under transformers' names."""
    width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, config.hidden)}
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (config.hidden,)
        shapes[prefix + "self_attn.q_proj.weight"] = (width, config.hidden)
        shapes[prefix + "self_attn.k_proj.weight"] = (kv_width, config.hidden)
        shapes[prefix + "self_attn.v_proj.weight"] = (kv_width, config.hidden)
        shapes[prefix + "self_attn.o_proj.weight"] = (config.hidden, width)
        if config.qk_norm:
            shapes[prefix + "self_attn.q_norm.weight"] = (config.head_dim,)
            shapes[prefix + "self_attn.k_norm.weight"] = (config.head_dim,)
        shapes[prefix + "post_attention_layernorm.weight"] = (config.hidden,)
        shapes[prefix + "mlp.gate_proj.weight"] = (config.intermediate, config.hidden)
        shapes[prefix + "mlp.up_proj.weight"] = (config.intermediate, config.hidden)
        shapes[prefix + "mlp.down_proj.weight"] = (config.hidden, config.intermediate)
    shapes["model.norm.weight"] = (config.hidden,)
    shapes |= _head_shapes(config)
    return shapes


def _head_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    labels, hidden = config.head.labels, config.hidden
    match config.head.kind:
        case HeadKind.SCORE:
            return {"score.weight": (labels, hidden)}
        case HeadKind.TWO_LAYERS:
            return {"score.0.weight": (hidden, hidden), "score.2.weight": (labels, hidden)}
        case HeadKind.VALUE:
            return {"v_head.summary.weight": (labels, hidden)}
        case _:
            return {} if config.tied_head else {"lm_head.weight": (config.vocab_size, hidden)}


def check_tensors(tensors: Mapping[str, Tensor], config: ModelConfig, source: str) -> None:
    """`ModelLoadError` naming the first tensor that is missing or has another shape."""
    for name, shape in required_shapes(config).items():
        tensor = tensors.get(name)
        if tensor is None:
            raise ModelLoadError(
                f"{source} lacks the tensor {name}; {config.architecture} needs it with shape {list(shape)}"
            )
        if tuple(tensor.shape) != shape:
            raise ModelLoadError(
                f"{source}: tensor {name} has shape {list(tensor.shape)}; config.json asks for {list(shape)}"
            )


def digest(parts: Iterable[tuple[str, Tensor]]) -> str:
    """Fingerprint of weights: blake2b-128 over names, types, shapes and bytes in the order of names."""
    state = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(parts, key=lambda part: part[0]):
        state.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        state.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return state.hexdigest()
