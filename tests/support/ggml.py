"""GGUF files of tiny models, as llama.cpp's converter writes them."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from .tiny import CHAT_TEMPLATE, EOS_ID

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, model: Any, folder: Path, *, quantised: bool = False, **extra: str) -> None:
    """What llama.cpp's converter writes: q and k of Llama have their rotary halves interleaved."""
    config, architecture = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    stored = json.loads((folder / "tokenizer.json").read_text())
    pieces = sorted(stored["model"]["vocab"], key=stored["model"]["vocab"].get)
    added = [token["content"] for token in stored["added_tokens"]]
    writer.add_tokenizer_model(extra.get("tokenizer", "gpt2"))
    writer.add_tokenizer_pre(extra.get("pre", "gpt-2"))
    writer.add_token_list([*pieces, *added])
    writer.add_token_types([gguf.TokenType.NORMAL] * len(pieces) + [gguf.TokenType.CONTROL] * len(added))
    writer.add_token_merges([])
    writer.add_eos_token_id(EOS_ID)
    writer.add_chat_template(CHAT_TEMPLATE)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        if architecture == "llama" and name.split(".")[-2] in heads:
            count = heads[name.split(".")[-2]]
            values = values.reshape(count, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        values = np.ascontiguousarray(values)
        target = _target(name)
        if quantised and values.ndim == 2 and values.shape[1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(target, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(target, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _target(name: str) -> str:
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    _, _, layer, *middle, part = name.split(".")
    return f"blk.{layer}.{_NAMES['.'.join(middle)]}.{part}"
