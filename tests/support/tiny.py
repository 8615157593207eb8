"""Tiny random models of every supported architecture, saved as transformers saves them, with a byte-level
tokenizer."""

import json
from pathlib import Path
from typing import Any

import torch
from branchwise.engine.models.lora import TARGETS

VOCABULARY = 300
EOS_ID = 256
CHAT_TEMPLATE = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n"
    "{%- if enable_thinking is defined and enable_thinking is false -%}<think>\n\n</think>\n\n{%- endif -%}"
    "{%- endif -%}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")

CONFIGS = {"Gemma3": "Gemma3Text"}
CLASSES = {"GPT2ForCausalLM": "GPT2LMHeadModel"}
"""Configurations and classes of transformers that are not named after their family."""

FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral")


def save_tokenizer(folder: Path, *, extra: tuple[str, ...] = (), **fields: str) -> None:
    """Every byte is a token; five special ones follow, <|endoftext|> (id 256) ends, then the `extra` ones.
    `fields` name more special tokens, or another `chat_template`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={piece: index for index, piece in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in (*SPECIALS, *extra)])
    template = fields.pop("chat_template", CHAT_TEMPLATE)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIALS[0], **fields)
    fast.chat_template = template
    fast.save_pretrained(folder)


def save_model(folder: Path, family: str, *, head: str = "CausalLM", seed: int = 0, **overrides: Any) -> Any:
    """Save a random fp32 model of `family` under `folder`; returns the transformers model."""
    import transformers

    torch.manual_seed(seed)
    fields = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "eos_token_id": EOS_ID,
        "bos_token_id": None,
        "pad_token_id": 0,
        **overrides,
    }
    config = getattr(transformers, f"{CONFIGS.get(family, family)}Config")(**fields)
    name = f"{family}For{head}"
    model = getattr(transformers, CLASSES.get(name, name))(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norm weights of 1 and biases of 0 would hide a weight that is not applied.
            if parameter.ndim == 1:
                parameter.copy_(torch.rand_like(parameter) + (0.5 if "norm" in name else -0.5))
            else:
                parameter.copy_(torch.randn_like(parameter) * 0.12)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model


def save_adapter(folder: Path, model: Any, *, seed: int = 1, rank: int = 4, **fields: Any) -> Path:
    """A LoRA adapter in PEFT's layout with random factors for every projection of `model`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 8,
        "target_modules": list(TARGETS),
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config | fields))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in TARGETS:
            ranks = fields.get("rank_pattern", {})
            own = next((ranks[end] for end in ranks if name.endswith(end)), rank)
            down = torch.randn(own, module.in_features, generator=generator) * 0.1
            up = torch.randn(module.out_features, own, generator=generator) * 0.1
            tensors[f"base_model.model.{name}.lora_A.weight"] = down
            tensors[f"base_model.model.{name}.lora_B.weight"] = up
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder
