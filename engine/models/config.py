"""The shape of a decoder model, read from a Hugging Face `config.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ModelLoadError
from ..protocol import ModelCost
from .rope import RopeConfig, rope_config

LM_HEADS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
LABEL_HEADS = {
    f"{family}For{kind}Classification": family.lower()
    for family in ("Llama", "Mistral", "Qwen2", "Qwen3")
    for kind in ("Token", "Sequence")
}
_ACTIVATIONS = ("silu", "swish")


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the decoder needs to know. Sizes are counts of features, `max_position` of positions.

    `windows` holds one entry per layer: the sliding window in positions, or None for full attention. `labels`
    is the width of a reward head, 0 for a language model.
    """

    architecture: str
    vocab_size: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_eps: float
    rope: RopeConfig
    max_position: int
    tied_head: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    labels: int = 0
    eos_ids: tuple[int, ...] = ()

    @property
    def is_reward(self) -> bool:
        """Whether a label head replaces the language-model head."""
        return self.labels > 0

    @property
    def head_columns(self) -> int:
        """Width of the output head."""
        return self.labels or self.vocab_size

    def with_rope_divisors(self, divisors: tuple[float, ...]) -> "ModelConfig":
        """This model with each rotary frequency divided by its own factor, as GGUF files state Llama 3's
        scaling."""
        return msgspec.structs.replace(self, rope=msgspec.structs.replace(self.rope, divisors=divisors))

    @property
    def cost(self) -> ModelCost:
        """Logical work per position; matrix weights only, biases and norms are not multiplied."""
        width = self.heads * self.head_dim
        kv_width = self.kv_heads * self.head_dim
        attention = self.hidden * (2 * width + 2 * kv_width)
        return ModelCost(
            block_params=self.layers * (attention + 3 * self.hidden * self.intermediate),
            layers=self.layers,
            attention_width=width,
            hidden=self.hidden,
            head_columns=self.head_columns,
        )


def read_config(folder: Path) -> ModelConfig:
    """The configuration of a model folder; `ModelLoadError` if it is missing, damaged or not supported."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelLoadError(
            f"{folder} has no config.json; a model folder holds config.json, safetensors and tokenizer.json"
        )
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelLoadError(f"{path} is not JSON ({error})") from None
    return parse_config(fields, str(path))


def parse_config(fields: Mapping[str, Any], source: str) -> ModelConfig:
    """`ModelConfig` from the fields of a `config.json`; `source` names it in errors."""
    if not isinstance(fields, Mapping):
        raise ModelLoadError(
            f"{source} holds a {type(fields).__name__}; it must be an object with `architectures`"
        )
    architecture = next(iter(fields.get("architectures") or ()), None)
    if architecture not in LM_HEADS and architecture not in LABEL_HEADS:
        known = ", ".join((*LM_HEADS, *LABEL_HEADS))
        raise ModelLoadError(
            f"{source}: architecture {architecture!r} is not supported; supported are {known}"
        )
    family = LM_HEADS.get(architecture) or LABEL_HEADS[architecture]
    activation = fields.get("hidden_act", "silu")
    if activation not in _ACTIVATIONS:
        raise ModelLoadError(f"{source}: hidden_act {activation!r} is not supported; supported is silu")
    try:
        return _build(fields, architecture, family, source)
    except KeyError as error:
        raise ModelLoadError(f"{source} lacks {error}, which {architecture} needs") from None


def _build(fields: Mapping[str, Any], architecture: str, family: str, source: str) -> ModelConfig:
    heads = int(fields["num_attention_heads"])
    layers = int(fields["num_hidden_layers"])
    hidden = int(fields["hidden_size"])
    head_dim = int(fields.get("head_dim") or hidden // heads)
    max_position = int(fields["max_position_embeddings"])
    kv_heads = int(fields.get("num_key_value_heads") or heads)
    if heads % kv_heads:
        raise ModelLoadError(
            f"{source}: {heads} attention heads are not a multiple of {kv_heads} key-value heads"
        )
    labels = 0
    if architecture in LABEL_HEADS:
        labels = len(fields["id2label"]) if fields.get("id2label") else int(fields.get("num_labels", 2))
    return ModelConfig(
        architecture=architecture,
        vocab_size=int(fields["vocab_size"]),
        hidden=hidden,
        intermediate=int(fields["intermediate_size"]),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rms_eps=float(fields.get("rms_norm_eps", 1e-6)),
        rope=rope_config(fields, head_dim, max_position, source),
        max_position=max_position,
        tied_head=bool(fields.get("tie_word_embeddings", False)),
        qk_norm=family == "qwen3",
        windows=_windows(fields, family, layers),
        labels=labels,
        eos_ids=as_ids(fields.get("eos_token_id")),
    )


def _windows(fields: Mapping[str, Any], family: str, layers: int) -> tuple[int | None, ...]:
    """Sliding window per layer, as transformers decides it: Mistral always, Qwen only when switched on."""
    window = fields.get("sliding_window", 4096)
    if window is None or family == "llama" or (family != "mistral" and not fields.get("use_sliding_window")):
        return (None,) * layers
    types = fields.get("layer_types")
    if types is None or family == "mistral":
        full = 0 if family == "mistral" else int(fields.get("max_window_layers", 28))
        types = ["full_attention" if layer < full else "sliding_attention" for layer in range(layers)]
    return tuple(int(window) if kind == "sliding_attention" else None for kind in types)


def as_ids(value: object) -> tuple[int, ...]:
    """Token ids from a field that holds one id, a list of them, or nothing."""
    if value is None:
        return ()
    return tuple(int(item) for item in value) if isinstance(value, list) else (int(value),)  # pyright: ignore[reportArgumentType]
