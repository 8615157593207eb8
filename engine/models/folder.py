"""Weights of a transformers folder: one safetensors file, or several with an index."""

import json
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import ModelLoadError

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of `folder` by name, in their stored types; `ModelLoadError` if a file is missing or
    damaged."""
    tensors: dict[str, Tensor] = {}
    for path, names in _files(folder).items():
        tensors.update(_read_file(path, names))
    return tensors


def _files(folder: Path) -> dict[Path, list[str] | None]:
    """Safetensors files and the names to take from each (None: all)."""
    index = folder / _INDEX
    if index.is_file():
        try:
            placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise ModelLoadError(
                f"{index} is not an index of safetensors ({error}); it needs a `weight_map`"
            ) from None
        files: dict[Path, list[str] | None] = {}
        for name, file in placed.items():
            names = files.setdefault(folder / file, [])
            assert names is not None
            names.append(name)
        for path in files:
            if not path.is_file():
                raise ModelLoadError(f"{path} is missing; {_INDEX} lists it")
        return files
    single = folder / _SINGLE
    if not single.is_file():
        raise ModelLoadError(f"{folder} has no {_SINGLE} and no {_INDEX}; only safetensors weights are read")
    return {single: None}


def _read_file(path: Path, names: Iterable[str] | None) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            stored = set(file.keys())
            wanted = stored if names is None else set(names)
            absent = sorted(wanted - stored)
            if absent:
                raise ModelLoadError(f"{path} lacks the tensor {absent[0]}, which {_INDEX} places there")
            return {name: file.get_tensor(name) for name in wanted}
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size
        reason = " ".join(str(error).split())
        raise ModelLoadError(
            f"{path} is damaged or cut short ({size} bytes: {reason}); copy the file again"
        ) from None
