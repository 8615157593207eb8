"""GGUF files written by the tests: equal to the folders they were made of."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.gguf import dequantised_bytes, to_transformers
from branchwise.engine.models.open import LoadedModel, open_model
from support.driving import scored_logprobs
from support.tiny import CHAT_TEMPLATE, EOS_ID, save_model

TOKENS = [(29 * i * i + 3 * i + 1) % 250 for i in range(60)]
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


def _write(path: Path, model: Any, folder: Path, *, quantised: bool = False, **extra: str) -> None:
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


def _made(tmp_path: Path, family: str, **options: Any) -> tuple[Path, LoadedModel]:
    folder = tmp_path / "folder"
    model = save_model(folder, family, **options.pop("fields", {}))
    path = tmp_path / "model.gguf"
    _write(path, model, folder, **options)
    return path, open_model(folder)


def _logprobs(model: LoadedModel) -> list[float]:
    return scored_logprobs(Runner(model, 10), TOKENS)


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_equals_the_folder_it_was_made_of(tmp_path: Path, family: str) -> None:
    path, original = _made(tmp_path, family, fields={"rope_parameters": {"rope_theta": 10000.0}})
    model = open_model(path)
    assert _logprobs(model) == pytest.approx(_logprobs(original), abs=1e-5)
    tokenizer = model.info.tokenizer
    assert tokenizer.encode("Añb <think>x") == original.info.tokenizer.encode("Añb <think>x")
    assert model.info.profile == original.info.profile
    assert dequantised_bytes(path) >= 4 * model.info.cost.block_params


def test_quantised_weights_stay_close(tmp_path: Path) -> None:
    fields = {"hidden_size": 96, "tie_word_embeddings": True}
    path, original = _made(tmp_path, "Llama", quantised=True, fields=fields)
    found, exact = torch.tensor(_logprobs(open_model(path))), torch.tensor(_logprobs(original))
    assert (found - exact).abs().mean() < 0.05 * exact.std()


def test_exported_folder_is_read_by_transformers(tmp_path: Path) -> None:
    import transformers

    path, original = _made(tmp_path, "Qwen2", fields={"tie_word_embeddings": True})
    to_transformers(path, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.encode("Aé<think>") == original.info.tokenizer.encode("Aé<think>")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.inference_mode():
        rows = model(torch.tensor([TOKENS])).logits[0].log_softmax(-1)[:-1]
    expected = rows.gather(-1, torch.tensor(TOKENS[1:])[:, None])[:, 0].tolist()
    assert _logprobs(original) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("size", [0, 3, 200, 30_000])
def test_a_cut_file_is_named(tmp_path: Path, size: int) -> None:
    path, _ = _made(tmp_path, "Llama")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelLoadError, match=rf"model.gguf is no GGUF file, or is cut short \({size} bytes"):
        open_model(path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"tokenizer": "bert"}, "tokenizer 'bert' is not supported; supported are gpt2 and llama"),
        ({"pre": "mystery"}, "pre-tokenizer 'mystery' is not supported"),
    ],
)
def test_other_tokenizers_are_refused(tmp_path: Path, extra: dict[str, str], message: str) -> None:
    path, _ = _made(tmp_path, "Llama", **extra)
    with pytest.raises(ModelLoadError, match=message):
        open_model(path)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match="'mamba' is not supported; supported are llama, qwen2, qwen3"):
        open_model(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no file at .*absent\.gguf"):
        open_model(tmp_path / "absent.gguf")


def test_a_sentencepiece_vocabulary(tmp_path: Path) -> None:
    """Merges follow from the scores; unknown characters fall back to bytes."""
    from branchwise.engine.models.ggml_vocabulary import read_tokenizer

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "ab", "▁a", "▁ab"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0] * 259 + [-9.0, -9.0, -9.0, -1.0, -3.0, -2.0],
        "tokenizer.ggml.token_type": [2, 3, 3, *([6] * 256), *([1] * 6)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    tokenizer = read_tokenizer(metadata, tmp_path)
    ids = tokenizer.encode("ab é")
    assert [pieces[token] for token in ids] == ["▁ab", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "ab é"
    assert tokenizer.eos_id == 2
