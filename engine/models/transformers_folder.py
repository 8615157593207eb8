"""A model folder of any family that transformers knows, loaded into its own classes and checked."""

import contextlib
from collections.abc import Iterator, Mapping
from logging import CRITICAL
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelLoadError
from .config import FAMILIES, HeadConfig, HeadKind, architecture_of
from .rope import ROPE_TYPES
from .transformers_model import TransformersModel

_ENDINGS = ("ForCausalLM", "LMHeadModel", "ForTokenClassification")
_LAYER_TYPES = ("full_attention", "sliding_attention")


def open_transformers(
    path: Path,
    fields: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    head: HeadConfig,
    dtype: torch.dtype,
    device: torch.device,
) -> TransformersModel:
    """The model of folder `path` with weights `tensors`. Only transformers' own classes are used, never code
    of the folder. `ModelLoadError`, in one line, names what is not supported."""
    architecture = architecture_of(fields)
    with _quiet(), _named(path, architecture):
        _check_fields(fields, head)
        cls, config = _find(path, fields, architecture)
        return TransformersModel(_load(cls, config, tensors, dtype), device, head.label_ids)


def _find(path: Path, fields: Mapping[str, Any], architecture: str) -> tuple[Any, Any]:
    """Class and configuration."""
    import transformers

    cls = getattr(transformers, architecture, None) if architecture.endswith(_ENDINGS) else None
    if cls is None:
        own = ", ".join(sorted(FAMILIES))
        raise ModelLoadError(
            "not supported; supported are the causal language models of transformers "
            f"{transformers.__version__}, among them {own}"
        )
    if not getattr(cls, "_supports_attention_backend", False):
        raise ModelLoadError("its attention cannot be replaced: transformers has no attention backend for it")
    try:
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # any field may be wrong, and the library checks them in its own ways
        raise ModelLoadError(f"its config.json does not fit ({_line(error)})") from None
    return cls, config


def _check_fields(fields: Mapping[str, Any], head: HeadConfig) -> None:
    """Refuse what paged attention on packed rows cannot do, by its name."""
    if head.kind not in (HeadKind.LM, HeadKind.LABEL_TOKENS, HeadKind.SCORE):
        raise ModelLoadError(f"a {head.kind} head is supported on {', '.join(sorted(FAMILIES))}")
    if fields.get("quantization_config"):
        raise ModelLoadError("its weights are quantised; give the model in bfloat16 or float32")
    types = fields.get("layer_types") or ()
    for kind in types if isinstance(types, list | tuple) else (types,):
        if kind in _LAYER_TYPES:
            continue
        raise ModelLoadError(f"layer type {kind!r} is not supported; supported are {_join(_LAYER_TYPES)}")
    for scaling in (fields.get("rope_parameters"), fields.get("rope_scaling")):
        for kind in _rope_types(scaling):
            if kind not in ROPE_TYPES:
                raise ModelLoadError(
                    f"rope type {kind!r} is not supported; supported are {_join(ROPE_TYPES)}"
                )


def _rope_types(parameters: Any) -> Iterator[str]:
    """The rope types of a configuration; some have one per layer type."""
    if not isinstance(parameters, Mapping):
        return
    kind = parameters.get("rope_type") or parameters.get("type")
    if kind is not None:
        yield str(kind)
    for value in parameters.values():
        yield from _rope_types(value)


def _load(cls: Any, config: Any, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Any:
    """The class with the tensors in place; `ModelLoadError` names the first that is missing or does not
    fit."""
    try:
        model, found = cls.from_pretrained(
            None,
            config=config,
            state_dict=dict(tensors),
            dtype=dtype,
            attn_implementation="eager",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    except Exception as error:  # conversions of fused or stacked weights fail in many ways
        raise ModelLoadError(f"its weights do not fit its config.json ({_line(error)})") from None
    if found["mismatched_keys"]:
        name, stored, wanted = min(found["mismatched_keys"])
        raise ModelLoadError(f"tensor {name} has shape {list(stored)}; config.json asks for {list(wanted)}")
    if found["missing_keys"]:
        raise ModelLoadError(f"lacks the tensor {min(found['missing_keys'])}")
    return model.eval()


@contextlib.contextmanager
def _named(path: Path, architecture: str) -> Iterator[None]:
    """Put folder and architecture before the reason of a refusal."""
    try:
        yield
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: architecture {architecture!r}: {error}") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' reports and progress bars: what they say is said in one line here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def _join(names: tuple[str, ...]) -> str:
    return ", ".join(names)
