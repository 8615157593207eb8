"""A GGUF file in bfloat16 from a transformers folder: what llama.cpp reads.

It has no vocabulary (`tokenizer.ggml.model` is "none"): a benchmark works on token ids.
"""

from pathlib import Path

import gguf
import numpy as np
from torch import Tensor

from ...engine.errors import UsageError
from ...engine.models.config import ModelConfig, parse_config, read_fields
from ...engine.models.folder import read_tensors

ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
}


def write_gguf(folder: Path, path: Path) -> None:
    """Write the model in `folder` to `path`, matrices in bfloat16, vectors in fp32. `UsageError` for an
    architecture, rotary scaling or bias that this does not know how to write."""
    config = parse_config(read_fields(folder), str(folder))
    if config.architecture not in ARCHITECTURES or config.rope.rope_type != "default":
        raise UsageError(
            f"{folder}: {config.architecture} with rope type {config.rope.rope_type} has no GGUF form here; "
            f"known are {', '.join(ARCHITECTURES)} with rope type default"
        )
    kind = ARCHITECTURES[config.architecture]
    names = gguf.get_tensor_name_map(kind, config.layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[kind])
    _describe(writer, config)
    for name, tensor in read_tensors(folder).items():
        if name == "lm_head.weight" and config.tied_head:
            continue
        place = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if place is None:
            raise UsageError(f"{folder}: the tensor {name} has no name in GGUF")
        if kind is gguf.MODEL_ARCH.LLAMA:
            tensor = _paired(name, tensor, config)
        _add(writer, place, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.intermediate)
    writer.add_block_count(config.layers)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("none")


def _add(writer: gguf.GGUFWriter, name: str, tensor: Tensor) -> None:
    values = tensor.float().numpy()
    if values.ndim == 1:
        writer.add_tensor(name, values)
        return
    kind = gguf.GGMLQuantizationType.BF16
    writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)


def _paired(name: str, tensor: Tensor, config: ModelConfig) -> Tensor:
    """llama.cpp rotates neighbouring features of a Llama head, transformers those half a head apart."""
    for part, heads in (("q_proj", config.heads), ("k_proj", config.kv_heads)):
        if f".{part}." in name:
            split = tensor.reshape(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2)
            return split.reshape(tensor.shape).contiguous()
    return tensor
