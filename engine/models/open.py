"""Open a model: a transformers folder or a GGUF file becomes weights, tokenizer and facts on one device."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from ..errors import ModelLoadError
from ..protocol import ModelInfo
from ..sampling.params import SamplingParams
from ..sched.step_budget import is_out_of_memory
from ..text.profile import FolderNotes, load_profile, read_notes
from ..text.step_format import Scorer, StepFormat, step_format
from ..text.tokenizer import HfTokenizer
from ..user_path import user_path
from .config import HeadConfig, as_ids, family_of, parse_config, read_fields
from .decoder import Decoder
from .folder import read_tensors
from .lora import merge_adapter
from .scorer import find_scorer, head_config, named_scorer, unwrapped
from .step_model import ModelFacts, StepModel
from .transformers_folder import open_transformers
from .weights import check_tensors, digest

DTYPES = {"float32": torch.float32, "fp32": torch.float32, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16}
_SAMPLED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class LoadedModel(NamedTuple):
    """A model ready for a `Runner`: `info` for the floors above, `decoder` with the weights; `deterministic`
    if its folder asks for the deterministic mode; `weights_bytes` as the model computes with them."""

    info: ModelInfo
    decoder: StepModel
    deterministic: bool = False
    weights_bytes: int = 0


class _Opened(NamedTuple):
    """What a folder or file holds. `build` makes the step model for a context of so many positions."""

    facts: ModelFacts
    build: Callable[[int], StepModel]
    tokenizer: HfTokenizer
    generation: dict[str, Any]
    notes: FolderNotes
    weights_digest: str
    adapter_digest: str
    weights_bytes: int
    scorer: Scorer | None


def open_model(
    source: str | Path,
    *,
    name: str | None = None,
    dtype: str | torch.dtype = "float32",
    device: str = "cpu",
    max_model_len: int | None = None,
    adapter: str | Path | None = None,
) -> LoadedModel:
    """Load the folder or `.gguf` file `source`. `max_model_len` shortens the context, in positions; the LoRA
    adapter in the PEFT folder `adapter` is merged into the weights.

    Raises `ModelLoadError`, in one line, for anything missing, damaged or not supported.
    """
    path = user_path(source)
    kind, target = _dtype(dtype), torch.device(device)
    if path.suffix == ".gguf":
        opened = _open_file(path, kind, target, adapter)
    elif path.is_dir():
        opened = _open_folder(path, kind, target, adapter)
    else:
        raise ModelLoadError(
            f"no model at {path}; give a folder with config.json and safetensors, or a .gguf file"
        )
    facts, tokenizer = opened.facts, opened.tokenizer
    if tokenizer.vocab_size > facts.vocab_size:
        raise ModelLoadError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} ids, the model {facts.vocab_size} embeddings"
        )
    length = _length(max_model_len, facts.max_position)
    eos_ids = {*as_ids(opened.generation.get("eos_token_id"), str(path)), *facts.eos_ids}
    info = ModelInfo(
        name=name or path.stem,
        source=str(source),
        head="reward" if facts.is_reward else "lm",
        vocab_size=facts.vocab_size,
        max_model_len=length,
        cost=facts.cost,
        tokenizer=tokenizer,
        profile=load_profile(tokenizer, opened.notes.profile, eos_ids, str(path / "branchwise.json")),
        sampling=default_sampling(opened.generation, path),
        weights_digest=opened.weights_digest,
        adapter_digest=opened.adapter_digest,
        steps=_steps(opened.scorer, tokenizer, path),
    )
    return LoadedModel(info, _built(opened, length, path), opened.notes.deterministic, opened.weights_bytes)


def _built(opened: _Opened, length: int, path: Path) -> StepModel:
    try:
        return opened.build(length)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ModelLoadError(
            f"{path} does not fit in memory ({opened.weights_bytes} bytes of weights, a context of {length} "
            "positions); shorten the context with max_model_len"
        ) from None


def _bytes(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> int:
    return sum(tensor.numel() for tensor in tensors.values()) * dtype.itemsize


def _open_file(path: Path, dtype: torch.dtype, device: torch.device, adapter: str | Path | None) -> _Opened:
    from .gguf import read_gguf

    file = read_gguf(path)
    scorer = named_scorer({}, path)
    head = head_config(scorer, file.fields, file.tensors, file.tokenizer)
    config = msgspec.structs.replace(file.config, head=head)
    merged = merge_adapter(file.tensors, adapter)
    return _Opened(
        facts=config.facts,
        build=partial(Decoder, config, merged.tensors, dtype, device),
        tokenizer=file.tokenizer,
        generation=file.generation,
        notes=FolderNotes(),
        weights_digest=file.weights_digest,
        adapter_digest=merged.adapter_digest,
        weights_bytes=_bytes(merged.tensors, dtype),
        scorer=scorer,
    )


def _open_folder(path: Path, dtype: torch.dtype, device: torch.device, adapter: str | Path | None) -> _Opened:
    fields = read_fields(path)
    tensors = unwrapped(read_tensors(path))
    tokenizer = HfTokenizer.open(path)
    notes = read_notes(read_json(path / "branchwise.json"), str(path / "branchwise.json"))
    scorer = find_scorer(fields, tensors, notes.scorer, path)
    head = head_config(scorer, fields, tensors, tokenizer)
    merged = merge_adapter(tensors, adapter)
    facts, build = _build(path, fields, merged.tensors, head, dtype, device)
    return _Opened(
        facts=facts,
        build=build,
        tokenizer=tokenizer,
        generation=read_json(path / "generation_config.json"),
        notes=notes,
        weights_digest=digest(tensors.items()),
        adapter_digest=merged.adapter_digest,
        weights_bytes=_bytes(merged.tensors, dtype),
        scorer=scorer,
    )


def _build(
    path: Path,
    fields: dict[str, Any],
    tensors: dict[str, Tensor],
    head: HeadConfig,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[ModelFacts, Callable[[int], StepModel]]:
    """The own decoder where it knows the family, else the classes of transformers."""
    if family_of(fields) is not None:
        config = parse_config(fields, str(path), head)
        check_tensors(tensors, config, str(path))
        return config.facts, partial(Decoder, config, tensors, dtype, device)
    model = open_transformers(path, fields, tensors, head, dtype, device)
    facts = msgspec.structs.replace(model.facts, eos_ids=as_ids(fields.get("eos_token_id"), str(path)))
    return facts, lambda positions: model


def _steps(scorer: Scorer | None, tokenizer: HfTokenizer, path: Path) -> StepFormat | None:
    """How the scorer reads steps. A classification head whose template does not show what it is given reads
    the ids of its own policy only."""
    if scorer is None:
        return None
    try:
        return step_format(scorer, tokenizer)
    except ModelLoadError as error:
        if scorer is Scorer.CLASSIFICATION:
            return None
        raise ModelLoadError(f"{path}: {error}") from None


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


def read_json(path: Path) -> dict[str, Any]:
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


def default_sampling(generation: dict[str, Any], path: Path) -> SamplingParams:
    """The model's own defaults. As in transformers, `do_sample: false` or its absence says nothing about a
    search: only the fields that are given count."""
    given = {field: generation[field] for field in _SAMPLED if generation.get(field) is not None}
    try:
        return msgspec.convert(given, SamplingParams)
    except msgspec.ValidationError as error:
        raise ModelLoadError(f"{path / 'generation_config.json'}: {error}") from None
