"""Model folders as transformers reads them: weights, configuration, tokenizer, profile of the markers."""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models
from torch import Tensor

from .decoder import MAX_POSITIONS, NORM_EPSILON, ROPE_THETA, Decoder, DecoderConfig, RewardModel
from .vocabulary import (
    BOS,
    BOS_ID,
    CALL,
    CALL_END,
    EOS,
    EOS_ID,
    PAD,
    PAD_ID,
    RESULT,
    RESULT_END,
    SPECIALS,
    STEP_MARK,
    THINK_END,
    TOKEN_IDS,
    UNKNOWN,
    VOCABULARY_SIZE,
    WAIT,
)

MODELS_FOLDER = Path(__file__).parent / "models"
CONTROL_TOKENS = (PAD, BOS, EOS, UNKNOWN)
CHAT_TEMPLATE = (
    "{%- set users = messages | selectattr('role', 'equalto', 'user') | list -%}"
    "{{- bos_token + users[-1].content -}}"
)

Role = Literal["policy", "draft", "prm"]


def build_tokenizer() -> Tokenizer:
    """One token a character; the special tokens are matched by their spelling. No bos is added on its own."""
    tokenizer = Tokenizer(models.BPE(vocab=TOKEN_IDS, merges=[], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    added = [AddedToken(token, normalized=False, special=token in CONTROL_TOKENS) for token in SPECIALS]
    tokenizer.add_tokens(added)
    return tokenizer


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def _model_config(config: DecoderConfig, role: Role) -> dict[str, Any]:
    architecture = "LlamaForTokenClassification" if role == "prm" else "LlamaForCausalLM"
    labels = (
        {"num_labels": 1, "id2label": {"0": "reachable"}, "label2id": {"reachable": 0}}
        if role == "prm"
        else {}
    )
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_heads,
        "head_dim": config.head_size,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": NORM_EPSILON,
        "rope_theta": ROPE_THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "torch_dtype": "float32",
        **labels,
    }


def _profile(role: Role) -> dict[str, Any]:
    markers = {
        "step_mark": STEP_MARK,
        "think_end": THINK_END,
        "wait": WAIT,
        "stop": [EOS],
        "call": CALL,
        "call_end": CALL_END,
        "result": RESULT,
        "result_end": RESULT_END,
    }
    return {"profile": markers, "role": role, "deterministic": True}


def _generation_config() -> dict[str, Any]:
    return {
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "do_sample": True,
        "temperature": 1.0,
    }


def save_folder(folder: Path, config: DecoderConfig, role: Role, weights: dict[str, Tensor]) -> None:
    """Write a whole model folder; `weights` are fp32 under transformers' names."""
    folder.mkdir(parents=True, exist_ok=True)
    contiguous = {name: tensor.float().contiguous() for name, tensor in weights.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    build_tokenizer().save(str(folder / "tokenizer.json"))
    documents = {
        "config.json": _model_config(config, role),
        "tokenizer_config.json": _tokenizer_config(),
        "branchwise.json": _profile(role),
    }
    if role != "prm":
        documents["generation_config.json"] = _generation_config()
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2) + "\n")


def read_config(folder: Path) -> DecoderConfig:
    """Sizes of the model in a folder."""
    config = json.loads((folder / "config.json").read_text())
    return DecoderConfig(
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        head_size=config["head_dim"],
        intermediate_size=config["intermediate_size"],
    )


def load_decoder(folder: Path, compute_dtype: torch.dtype = torch.float32) -> Decoder:
    """The lean decoder with the weights of a folder."""
    decoder = Decoder(read_config(folder), compute_dtype)
    decoder.load_state_dict(load_file(folder / "model.safetensors"))
    return decoder.eval()


def load_reward_model(folder: Path, compute_dtype: torch.dtype = torch.float32) -> RewardModel:
    """The lean reward model with the weights of a folder."""
    model = RewardModel(read_config(folder), compute_dtype)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()
