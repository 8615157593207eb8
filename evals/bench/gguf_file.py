"""A GGUF file from a transformers folder: what llama.cpp reads."""

from collections.abc import Callable
from pathlib import Path

import gguf
from gguf import GGMLQuantizationType
from torch import Tensor

from ...engine.errors import UsageError
from ...engine.models.config import ModelConfig, parse_config, read_fields
from ...engine.models.folder import read_tensors

ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
}

MATRICES = {
    GGMLQuantizationType.F32: gguf.LlamaFileType.ALL_F32,
    GGMLQuantizationType.BF16: gguf.LlamaFileType.MOSTLY_BF16,
    GGMLQuantizationType.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
}
"""What matrices may be written in, and what such a file is called."""


def no_vocabulary(writer: gguf.GGUFWriter) -> None:
    """A benchmark works on token ids."""
    writer.add_tokenizer_model("none")


def write_gguf(
    folder: Path,
    path: Path,
    *,
    matrices: GGMLQuantizationType = GGMLQuantizationType.BF16,
    vocabulary: Callable[[gguf.GGUFWriter], None] = no_vocabulary,
) -> None:
    """Write the model in `folder` to `path`, vectors in fp32, and by `vocabulary` what is to be known of its
    tokenizer. `UsageError` for an architecture, rotary scaling or bias that this does not know how to write.
    """
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
    writer.add_file_type(MATRICES[matrices])
    vocabulary(writer)
    for name, tensor in read_tensors(folder).items():
        if name == "lm_head.weight" and config.tied_head:
            continue
        place = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if place is None:
            raise UsageError(f"{folder}: the tensor {name} has no name in GGUF")
        if kind is gguf.MODEL_ARCH.LLAMA:
            tensor = _paired(name, tensor, config)
        values = tensor.float().contiguous().numpy()
        stored = GGMLQuantizationType.F32 if values.ndim == 1 else matrices
        writer.add_tensor(place, gguf.quantize(values, stored), raw_dtype=stored)
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


def _paired(name: str, tensor: Tensor, config: ModelConfig) -> Tensor:
    """llama.cpp rotates neighbouring features of a Llama head, transformers those half a head apart."""
    for part, heads in (("q_proj", config.heads), ("k_proj", config.kv_heads)):
        if f".{part}." in name:
            split = tensor.reshape(heads, 2, -1, *tensor.shape[1:]).transpose(1, 2)
            return split.reshape(tensor.shape).contiguous()
    return tensor
