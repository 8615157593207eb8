"""Open a model: a transformers folder or a GGUF file becomes weights, tokenizer and facts on one device."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from ..errors import ModelLoadError
from ..protocol import ModelInfo
from ..sampling.params import SamplingParams
from ..text.profile import FolderNotes, load_profile, read_notes
from ..text.tokenizer import HfTokenizer
from .config import ModelConfig, as_ids, read_config
from .decoder import Decoder
from .folder import read_tensors
from .weights import check_tensors, digest

DTYPES = {"float32": torch.float32, "fp32": torch.float32, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16}
_SAMPLED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class LoadedModel(NamedTuple):
    """A model ready for a `Runner`: `info` for the floors above, `decoder` with the weights; `deterministic`
    if its folder asks for the deterministic mode."""

    info: ModelInfo
    decoder: Decoder
    deterministic: bool = False

    @property
    def config(self) -> ModelConfig:
        return self.decoder.config


def open_model(
    source: str | Path,
    *,
    name: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str = "cpu",
    max_model_len: int | None = None,
) -> LoadedModel:
    """Load the folder or `.gguf` file `source`. `max_model_len` shortens the context, in positions.

    Raises `ModelLoadError`, in one line, for anything missing, damaged or not supported.
    """
    path = Path(source).expanduser()
    kind = _dtype(dtype)
    target = torch.device(device)
    if path.suffix == ".gguf":
        from .gguf import read_gguf

        file = read_gguf(path)
        config, tensors, fingerprint = file.config, file.tensors, file.weights_digest
        tokenizer, generation, notes = file.tokenizer, file.generation, FolderNotes()
    elif path.is_dir():
        config = read_config(path)
        tensors = read_tensors(path)
        check_tensors(tensors, config, str(path))
        fingerprint = digest(tensors.items())
        tokenizer, generation = HfTokenizer.open(path), _json(path / "generation_config.json")
        notes = read_notes(_json(path / "branchwise.json"), str(path / "branchwise.json"))
    else:
        raise ModelLoadError(
            f"no model at {path}; give a folder with config.json and safetensors, or a .gguf file"
        )
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelLoadError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} ids, the model {config.vocab_size} embeddings"
        )
    length = _length(max_model_len, config.max_position)
    eos_ids = {*as_ids(generation.get("eos_token_id")), *config.eos_ids}
    profile = load_profile(tokenizer, notes.profile, eos_ids, str(path / "branchwise.json"))
    decoder = Decoder(config, tensors, kind, target, length)
    info = ModelInfo(
        name=name or path.stem,
        source=str(source),
        head="reward" if config.is_reward else "lm",
        vocab_size=config.vocab_size,
        max_model_len=length,
        cost=config.cost,
        tokenizer=tokenizer,
        profile=profile,
        sampling=_sampling(generation, path),
        weights_digest=fingerprint,
    )
    return LoadedModel(info, decoder, notes.deterministic)


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    kind = dtype if isinstance(dtype, torch.dtype) else DTYPES.get(dtype)
    if kind not in DTYPES.values() or kind is None:
        raise ModelLoadError(f"dtype {dtype} is not supported; supported are float32 and bfloat16")
    return kind


def _length(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return trained
    if not 2 <= wanted <= trained:
        raise ModelLoadError(f"max_model_len {wanted} is out of range; this model takes 2 to {trained}")
    return wanted


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelLoadError(f"{path} is not JSON ({error})") from None
    if not isinstance(fields, dict):
        raise ModelLoadError(f"{path} holds a {type(fields).__name__}; it must be an object")
    return fields


def _sampling(generation: dict[str, Any], path: Path) -> SamplingParams:
    """The model's own defaults. As in transformers, `do_sample: false` or its absence says nothing about a
    search: only the fields that are given count."""
    given = {field: generation[field] for field in _SAMPLED if generation.get(field) is not None}
    try:
        return msgspec.convert(given, SamplingParams)
    except msgspec.ValidationError as error:
        raise ModelLoadError(f"{path / 'generation_config.json'}: {error}") from None
