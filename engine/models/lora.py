"""LoRA adapters in PEFT's folder format, merged into a model's weights: `W + scale * B @ A`.

Merged, an adapter costs nothing per step, and memory only where the base model is open beside it: each role
holds its own copy of the weights.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import ModelLoadError
from ..user_path import user_path
from .weights import digest

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<factor>[AB])(\.default)?\.weight")


class AdapterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `adapter_config.json` that change the weights. `rank_pattern` and `alpha_pattern` give
    single modules another rank or alpha, by the end of their names."""

    peft_type: str
    r: int
    lora_alpha: float
    use_rslora: bool = False
    use_dora: bool = False
    fan_in_fan_out: bool = False
    lora_bias: bool = False
    bias: str = "none"
    modules_to_save: list[str] | None = None
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}

    def scale(self, module: str) -> float:
        """What the product of the factors of `module` is multiplied by."""
        rank = _matching(self.rank_pattern, module, self.r)
        alpha = _matching(self.alpha_pattern, module, self.lora_alpha)
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)


class Merged(NamedTuple):
    """Weights with an adapter in them, and the adapter's own fingerprint."""

    tensors: dict[str, Tensor]
    adapter_digest: str


def merge_adapter(tensors: Mapping[str, Tensor], folder: str | Path | None) -> Merged:
    """The model of `tensors`, under transformers' names, with the adapter of `folder`, if there is one;
    `tensors` stay as they are. Changed weights are fp32. Raises `ModelLoadError` in one line."""
    if folder is None:
        return Merged(dict(tensors), "")
    path = user_path(folder)
    config = read_adapter_config(path)
    stored = _read_factors(path / _WEIGHTS)
    factors = _by_module(stored, path)
    merged = dict(tensors)
    for module, (down, up) in factors.items():
        name = f"{module}.weight"
        base = tensors.get(name)
        if base is None:
            raise ModelLoadError(f"{path} adapts {module}, which this model does not have")
        if (up.shape[0], down.shape[1]) != tuple(base.shape) or up.shape[1] != down.shape[0]:
            raise ModelLoadError(
                f"{path}: the factors of {module} have shapes {list(down.shape)} and {list(up.shape)}; "
                f"its weight has {list(base.shape)}"
            )
        merged[name] = base.float() + config.scale(module) * (up.float() @ down.float())
    facts = torch.frombuffer(bytearray(msgspec.json.encode(config, order="sorted")), dtype=torch.uint8)
    return Merged(merged, digest([*stored.items(), (_CONFIG, facts)]))


def read_adapter_config(folder: Path) -> AdapterConfig:
    """The configuration of an adapter folder; `ModelLoadError` for what a plain merge cannot do."""
    path = folder / _CONFIG
    if not path.is_file():
        raise ModelLoadError(f"no adapter at {folder}; give a PEFT folder with {_CONFIG} and {_WEIGHTS}")
    try:
        config = msgspec.convert(json.loads(path.read_text(encoding="utf-8")), AdapterConfig)
    except (UnicodeDecodeError, ValueError) as error:
        raise ModelLoadError(f"{path}: {error}") from None
    if config.peft_type != "LORA":
        raise ModelLoadError(f"{path}: peft_type {config.peft_type!r} is not supported; supported is LORA")
    refused = {
        "use_dora": config.use_dora,
        "fan_in_fan_out": config.fan_in_fan_out,
        "lora_bias": config.lora_bias,
        "bias": config.bias != "none",
        "modules_to_save": bool(config.modules_to_save),
    }
    for field, is_set in refused.items():
        if is_set:
            raise ModelLoadError(f"{path} sets {field}; only plain LoRA factors are supported")
    if not all(map(math.isfinite, (config.lora_alpha, *config.alpha_pattern.values()))):
        raise ModelLoadError(f"{path}: a lora_alpha is not finite; it must be a number")
    least = min(config.r, *config.rank_pattern.values(), config.r)
    if least < 1:
        raise ModelLoadError(f"{path}: a rank of {least} is out of range; it must be at least 1")
    return config


def _read_factors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ModelLoadError(f"{path} is missing; an adapter folder holds {_CONFIG} and {_WEIGHTS}")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{path} is damaged or cut short ({' '.join(str(error).split())})") from None


def _by_module(stored: Mapping[str, Tensor], path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """(A [rank, in], B [out, rank]) by module name."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in stored.items():
        match = _NAME.fullmatch(name)
        if match is None or match["module"].rpartition(".")[2] not in TARGETS:
            raise ModelLoadError(
                f"{path}: tensor {name} is not supported; supported are LoRA factors of {', '.join(TARGETS)}"
            )
        found.setdefault(match["module"], {})[match["factor"]] = tensor
    for module, factors in found.items():
        if len(factors) < 2:
            raise ModelLoadError(f"{path} has only one of the two LoRA factors of {module}")
    if not found:
        raise ModelLoadError(f"{path} holds no LoRA factors")
    return {module: (factors["A"], factors["B"]) for module, factors in found.items()}


def _matching(patterns: Mapping[str, float], module: str, default: float) -> float:
    """The value of the first pattern that the module's name ends with, as PEFT matches them."""
    for pattern, value in patterns.items():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            return value
    return default
