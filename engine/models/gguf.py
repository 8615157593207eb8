"""Models in one GGUF file: configuration, dequantised weights and tokenizer, under transformers' names."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import structlog
import torch
from torch import Tensor

from ..errors import ModelLoadError
from ..text.tokenizer import HfTokenizer
from .config import ModelConfig, parse_config
from .ggml_vocabulary import read_tokenizer, tokenizer_documents
from .gguf_header import check_header
from .weights import check_tensors, digest

log = structlog.get_logger(__name__)

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ROPE_DIVISORS = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class GgufFile:
    """`fields` are the equivalent `config.json`; `tensors` are fp32; `weights_digest` is over the stored
    bytes; `generation` holds what a `generation_config.json` would."""

    config: ModelConfig
    fields: Mapping[str, Any]
    tensors: dict[str, Tensor]
    weights_digest: str
    tokenizer: HfTokenizer
    generation: dict[str, Any]


def dequantised_bytes(reader: gguf.GGUFReader) -> int:
    """Memory that the weights take as fp32, in bytes, from the header alone."""
    return sum(4 * int(tensor.n_elements) for tensor in reader.tensors)


def read_gguf(path: Path) -> GgufFile:
    """The whole file, once it is logged what it will take; `ModelLoadError` if it is missing, damaged or
    holds something else than a supported decoder."""
    reader = open_gguf(path)
    log.info("dequantising", file=path.name, megabytes=round(dequantised_bytes(reader) / 1e6, 1))
    try:
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors, fingerprint = _tensors(reader, metadata)
    except ModelLoadError:
        raise
    except Exception as error:  # a damaged file surfaces as almost any exception of the reader
        raise _damaged(path, error) from None
    divisors = tensors.pop(_ROPE_DIVISORS, None)
    fields = _fields(metadata, tensors, path)
    config = parse_config(fields, str(path))
    if divisors is not None:
        config = config.with_rope_divisors(tuple(divisors.tolist()))
    check_tensors(tensors, config, str(path))
    _restore(tensors, config, str(metadata["general.architecture"]))
    generation = {"eos_token_id": [metadata[key] for key in _EOS_KEYS if key in metadata]}
    return GgufFile(config, fields, tensors, fingerprint, read_tokenizer(metadata, path), generation)


def to_transformers(path: Path, folder: Path) -> None:
    """Write the model of a GGUF file as a transformers folder (fp32 safetensors), for programs that read only
    that."""
    from safetensors.torch import save_file

    file = read_gguf(path)
    if file.config.rope.divisors is not None:
        raise ModelLoadError(
            f"{path}: its rope divisors have no transformers equivalent; load the file itself"
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(file.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    documents = {
        "config.json": {**file.fields, "torch_dtype": "float32"},
        "generation_config.json": file.generation,
        **tokenizer_documents(file.tokenizer),
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1), encoding="utf-8")


_EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")


def open_gguf(path: Path) -> gguf.GGUFReader:
    """The file's header and its tensors as they are stored; `ModelLoadError` if it is missing or damaged."""
    if not path.is_file():
        raise ModelLoadError(f"no file at {path}; give a .gguf file, or a folder with safetensors")
    try:
        check_header(path)
        return gguf.GGUFReader(path)
    except Exception as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> ModelLoadError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ModelLoadError(f"{path} is no GGUF file, or is cut short ({path.stat().st_size} bytes: {reason})")


def _tensors(reader: gguf.GGUFReader, metadata: Mapping[str, Any]) -> tuple[dict[str, Tensor], str]:
    """fp32 tensors under transformers' names, and the digest of the stored bytes."""
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelLoadError(f"GGUF architecture {architecture!r} is not supported; supported are {known}")
    tensors: dict[str, Tensor] = {}
    stored: list[tuple[str, Tensor]] = []
    for tensor in reader.tensors:
        raw = torch.from_numpy(np.array(tensor.data).view(np.uint8))
        stored.append((f"{tensor.name}:{tensor.tensor_type.name}", raw))
        values = np.ascontiguousarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        shape = tuple(int(size) for size in reversed(tensor.shape))
        tensors[_name(tensor.name)] = torch.from_numpy(values.reshape(shape).copy())
    return tensors, digest(stored)


def _name(name: str) -> str:
    """transformers' name of a GGUF tensor; unknown ones keep theirs."""
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _PARTS:
        return _WHOLE.get(name, name)
    return f"model.layers.{match[1]}.{_PARTS[match[2]]}.{match[3]}"


def _fields(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """The `config.json` that says the same as the file's metadata."""
    prefix = f"{metadata['general.architecture']}."

    def get(key: str, default: Any = None) -> Any:
        value = metadata.get(prefix + key, default)
        if value is None:
            raise ModelLoadError(f"{path} lacks the metadata {prefix}{key}")
        return value

    heads, hidden = int(get("attention.head_count")), int(get("embedding_length"))
    head_dim = int(get("attention.key_length", hidden // heads))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": float(get("rope.freq_base", 10000.0))}
    scaling = get("rope.scaling.type", "none")
    if scaling != "none":
        rope |= {"rope_type": scaling, "factor": float(get("rope.scaling.factor"))}
        if scaling == "yarn":
            rope["original_max_position_embeddings"] = int(get("rope.scaling.original_context_length"))
    return {
        "architectures": [ARCHITECTURES[metadata["general.architecture"]]],
        "model_type": metadata["general.architecture"],
        "vocab_size": int(tensors["model.embed_tokens.weight"].shape[0]),
        "hidden_size": hidden,
        "intermediate_size": int(get("feed_forward_length")),
        "num_hidden_layers": int(get("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(get("attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": int(get("context_length")),
        "rms_norm_eps": float(get("attention.layer_norm_rms_epsilon")),
        "rope_theta": rope["rope_theta"],
        "rope_parameters": rope,
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in tensors,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }


def _restore(tensors: dict[str, Tensor], config: ModelConfig, architecture: str) -> None:
    """Undo what the conversion to GGUF did to Llama's q and k: their rows were paired for another rotary
    layout."""
    if architecture != "llama":
        return
    for layer in range(config.layers):
        for name, heads in (("q_proj", config.heads), ("k_proj", config.kv_heads)):
            for part in ("weight", "bias"):
                key = f"model.layers.{layer}.self_attn.{name}.{part}"
                if key in tensors:
                    rows = tensors[key]
                    split = rows.reshape(heads, -1, 2, *rows.shape[1:]).transpose(1, 2)
                    tensors[key] = split.reshape(rows.shape).contiguous()
