"""The shape of a decoder model, read from a Hugging Face `config.json`."""

import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from ..errors import ModelLoadError
from ..protocol import ModelCost
from .rope import RopeConfig, rope_config
from .step_model import AttentionShape, ModelFacts

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
FAMILIES = frozenset(LM_HEADS.values())
_SCORER_ENDINGS = ("ForProcessRewardModel", "ForPrmModel", "ForRewardModel")
_ACTIVATIONS = ("silu", "swish")


class HeadKind(enum.StrEnum):
    """What stands behind the last norm: the vocabulary (`lm_head`), one linear layer (`score`), two of them
    with ReLU between (`score.0`, `score.2`), a value head (`v_head.summary`), or the rows of the vocabulary
    that belong to a few label tokens."""

    LM = enum.auto()
    SCORE = enum.auto()
    TWO_LAYERS = enum.auto()
    VALUE = enum.auto()
    LABEL_TOKENS = enum.auto()


class HeadConfig(msgspec.Struct, frozen=True):
    """`labels` is the width of a reward head, 0 for a language model; `label_ids` are the label tokens."""

    kind: HeadKind = HeadKind.LM
    labels: int = 0
    label_ids: tuple[int, ...] = ()


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the decoder needs to know. Sizes are counts of features, `max_position` of positions.

    `windows` holds one entry per layer: the sliding window in positions, or None for full attention.
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
    head: HeadConfig = HeadConfig()
    eos_ids: tuple[int, ...] = ()

    @property
    def head_columns(self) -> int:
        """Width of the output head."""
        return self.head.labels or self.vocab_size

    @property
    def attention(self) -> AttentionShape:
        """What the paged attention needs to know."""
        return AttentionShape(
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            scale=self.head_dim**-0.5,
            windows=self.windows,
        )

    @property
    def facts(self) -> ModelFacts:
        """What the floors above ask."""
        return ModelFacts(
            vocab_size=self.vocab_size,
            max_position=self.max_position,
            cost=self.cost,
            is_reward=self.head.labels > 0,
            eos_ids=self.eos_ids,
        )

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
        inner = self.hidden if self.head.kind is HeadKind.TWO_LAYERS else 0
        return ModelCost(
            block_params=self.layers * (attention + 3 * self.hidden * self.intermediate),
            layers=self.layers,
            attention_width=width,
            hidden=self.hidden,
            head_columns=self.head_columns + inner,
        )


def read_fields(folder: Path) -> dict[str, Any]:
    """The `config.json` of a model folder; `ModelLoadError` if it is missing or damaged."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelLoadError(
            f"{folder} has no config.json; a model folder holds config.json, safetensors and tokenizer.json"
        )
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelLoadError(f"{path} is not JSON ({error})") from None
    if not isinstance(fields, dict):
        raise ModelLoadError(
            f"{path} holds a {type(fields).__name__}; it must be an object with `architectures`"
        )
    return fields


def family_of(fields: Mapping[str, Any]) -> str | None:
    """The family of the own decoder that a `config.json` belongs to, None for any other model.

    A step scorer with an architecture of its own counts by the model that it was made of.
    """
    architecture = architecture_of(fields)
    known = LM_HEADS.get(architecture) or LABEL_HEADS.get(architecture)
    if known is None and architecture.endswith(_SCORER_ENDINGS):
        known = fields.get("model_type")
    return known if known in FAMILIES else None


def architecture_of(fields: Mapping[str, Any]) -> str:
    """The first name under `architectures`, empty where there is none."""
    names = fields.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def parse_config(fields: Mapping[str, Any], source: str, head: HeadConfig | None = None) -> ModelConfig:
    """`ModelConfig` from the fields of a `config.json`; `source` names it in errors. `head` is that of a
    step scorer, where its architecture does not say it."""
    architecture, family = architecture_of(fields), family_of(fields)
    if family is None:
        known = ", ".join((*LM_HEADS, *LABEL_HEADS))
        raise ModelLoadError(
            f"{source}: architecture {architecture!r} is not supported; supported are {known}"
        )
    activation = fields.get("hidden_act", "silu")
    if activation not in _ACTIVATIONS:
        raise ModelLoadError(f"{source}: hidden_act {activation!r} is not supported; supported is silu")
    _check_sizes(fields, source)
    try:
        return _build(fields, architecture, family, source, head or head_of(fields))
    except KeyError as error:
        raise ModelLoadError(f"{source} lacks {error}, which {architecture} needs") from None


_SIZES = (
    "num_attention_heads",
    "num_hidden_layers",
    "hidden_size",
    "max_position_embeddings",
    "vocab_size",
    "intermediate_size",
)
_OPTIONAL_SIZES = ("head_dim", "num_key_value_heads")
_LARGEST = {"num_hidden_layers": 10_000, "head_dim": 1 << 16}
_LARGEST_SIZE = (1 << 31) - 1
"""Above this nothing is a model; a damaged file must not make anybody allocate by what it says."""


def _check_sizes(fields: Mapping[str, Any], source: str) -> None:
    """Refuse sizes that are no whole numbers above 0, and an epsilon that is no small positive number."""
    for name in (*_SIZES, *_OPTIONAL_SIZES):
        value, most = fields.get(name), _LARGEST.get(name, _LARGEST_SIZE)
        absent = name not in fields or (value is None and name in _OPTIONAL_SIZES)
        if not absent and not (_is_whole(value) and 0 < value <= most):
            raise ModelLoadError(
                f"{source}: {name} is {value!r}; it must be a whole number above 0 (at most {most})"
            )
    epsilon = fields.get("rms_norm_eps", 1e-6)
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0.0 < epsilon < 1.0:
        raise ModelLoadError(f"{source}: rms_norm_eps is {epsilon!r}; it must lie between 0 and 1")


def head_of(fields: Mapping[str, Any]) -> HeadConfig:
    """The head that the architecture's name says."""
    if not architecture_of(fields).endswith(("ForTokenClassification", "ForSequenceClassification")):
        return HeadConfig()
    names, labels = fields.get("id2label"), fields.get("num_labels", 2)
    if names:
        labels = len(names) if isinstance(names, Mapping) else names
    if not _is_whole(labels) or labels < 1:
        raise ModelLoadError(f"config.json: the number of labels is {labels!r}; it must be above 0")
    return HeadConfig(HeadKind.SCORE, labels)


def _build(
    fields: Mapping[str, Any], architecture: str, family: str, source: str, head: HeadConfig
) -> ModelConfig:
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
        windows=_windows(fields, family, layers, source),
        head=head,
        eos_ids=as_ids(fields.get("eos_token_id"), source),
    )


def _windows(fields: Mapping[str, Any], family: str, layers: int, source: str) -> tuple[int | None, ...]:
    """Sliding window per layer, as transformers decides it: Mistral always, Qwen only when switched on."""
    window = fields.get("sliding_window", 4096)
    if window is None or family == "llama" or (family != "mistral" and not fields.get("use_sliding_window")):
        return (None,) * layers
    if not _is_whole(window) or window < 1:
        raise ModelLoadError(f"{source}: sliding_window is {window!r}; it must be a whole number above 0")
    types = fields.get("layer_types")
    if types is None or family == "mistral":
        full = 0 if family == "mistral" else fields.get("max_window_layers", 28)
        if not _is_whole(full):
            raise ModelLoadError(f"{source}: max_window_layers is {full!r}; it must be a whole number")
        types = ["full_attention" if layer < full else "sliding_attention" for layer in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise ModelLoadError(f"{source}: layer_types is {types!r}; it must name the type of {layers} layers")
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def as_ids(value: object, source: str) -> tuple[int, ...]:
    """Token ids from an `eos_token_id` that holds one id, a list of them, or nothing; one below 0 is no
    token's."""
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(_is_whole(token) for token in ids):
        raise ModelLoadError(f"{source}: eos_token_id is {value!r}; it must be a token id or a list of them")
    return tuple(token for token in ids if _is_whole(token) and token >= 0)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
