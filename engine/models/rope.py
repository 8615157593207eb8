"""Rotary position embedding: the inverse frequencies of each scaling type, and the table of rotations."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from ..errors import ModelLoadError

ROPE_TYPES = ("default", "linear", "llama3", "yarn")


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters under transformers' names. `original_max_position` is the trained context of a stretched
    model. `divisors` replace the type's own formula: one per pair of features."""

    rope_type: str = "default"
    theta: float = 10000.0
    dim: int
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    divisors: tuple[float, ...] | None = None


def rope_config(fields: Mapping[str, Any], head_dim: int, max_position: int, source: str) -> RopeConfig:
    """From `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before); other types are
    refused."""
    scaling = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise ModelLoadError(f"{source}: the rope parameters are {scaling!r}; they must be an object")
    rope_type = scaling.get("rope_type") or scaling.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise ModelLoadError(
            f"{source}: rope type {rope_type!r} is not supported; supported are {', '.join(ROPE_TYPES)}"
        )
    partial = scaling.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0))
    if partial not in (None, 1.0):
        raise ModelLoadError(f"{source}: partial_rotary_factor {partial} is not supported; supported is 1.0")
    theta = scaling.get("rope_theta", fields.get("rope_theta", 10000.0))
    original = scaling.get("original_max_position_embeddings") or fields.get(
        "original_max_position_embeddings"
    )
    given = {
        "rope_type": rope_type,
        "theta": theta,
        "dim": head_dim,
        "factor": scaling.get("factor") or 1.0,
        "low_freq_factor": scaling.get("low_freq_factor", 1.0),
        "high_freq_factor": scaling.get("high_freq_factor", 4.0),
        "original_max_position": original or max_position,
        "beta_fast": scaling.get("beta_fast") or 32.0,
        "beta_slow": scaling.get("beta_slow") or 1.0,
        "attention_factor": scaling.get("attention_factor"),
        "mscale": scaling.get("mscale"),
        "mscale_all_dim": scaling.get("mscale_all_dim"),
        "truncate": scaling.get("truncate", True),
    }
    try:
        config = msgspec.convert(given, RopeConfig)
        finite = math.isfinite(_attention_factor(config)) and inverse_frequencies(config).isfinite().all()
    except msgspec.ValidationError as error:
        raise ModelLoadError(f"{source}: a rope parameter is no number: {error}") from None
    except (ArithmeticError, ValueError):
        config, finite = None, False
    if config is None or not finite:
        raise ModelLoadError(
            f"{source}: its rope parameters give no finite frequencies: {dict(scaling) or theta}"
        )
    return config


def rotation_table(config: RopeConfig, positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of positions `0 <= p < positions`, fp32 [positions, dim / 2] each, attention factor
    included."""
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * inverse_frequencies(config)
    factor = _attention_factor(config)
    return angles.cos().mul_(factor), angles.sin().mul_(factor)


def inverse_frequencies(config: RopeConfig) -> Tensor:
    """Radians per position for each pair of features, fp32 [dim / 2]."""
    exponent = torch.arange(0, config.dim, 2, dtype=torch.float32) / config.dim
    inverse = 1.0 / config.theta**exponent
    if config.divisors is not None:
        return inverse / torch.tensor(config.divisors)
    if config.rope_type == "linear":
        return inverse / config.factor
    if config.rope_type == "llama3":
        return _llama3(config, inverse)
    if config.rope_type == "yarn":
        return _yarn(config, inverse)
    return inverse


def _llama3(config: RopeConfig, inverse: Tensor) -> Tensor:
    """Long wavelengths are stretched by `factor`, short ones kept, those between interpolated (Llama 3.1)."""
    wavelength = 2 * math.pi / inverse
    longest = config.original_max_position / config.low_freq_factor
    shortest = config.original_max_position / config.high_freq_factor
    smooth = (config.original_max_position / wavelength - config.low_freq_factor) / (
        config.high_freq_factor - config.low_freq_factor
    )
    blended = (1 - smooth) * inverse / config.factor + smooth * inverse
    stretched = torch.where(wavelength > longest, inverse / config.factor, inverse)
    return torch.where((wavelength <= longest) & (wavelength >= shortest), blended, stretched)


def _yarn(config: RopeConfig, inverse: Tensor) -> Tensor:
    """YaRN (Peng et al. 2023): interpolate the features that turn less than `beta_slow` times in the trained
    context."""

    def feature(turns: float) -> float:
        trained = config.original_max_position
        return config.dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    low, high = feature(config.beta_fast), feature(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(config.dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return inverse / config.factor * ramp + inverse * (1 - ramp)


def _attention_factor(config: RopeConfig) -> float:
    if config.rope_type != "yarn":
        return 1.0
    if config.attention_factor is not None:
        return config.attention_factor

    def scale(mscale: float) -> float:
        return 0.1 * mscale * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0

    if config.mscale and config.mscale_all_dim:
        return scale(config.mscale) / scale(config.mscale_all_dim)
    return scale(1.0)
