"""Resumable checkpoints: written beside and renamed, so that a kill at any moment leaves a whole file."""

from pathlib import Path
from typing import Any

import torch

CHECKPOINT_FOLDER = Path(__file__).parent / "checkpoints"


def checkpoint_path(name: str) -> Path:
    """Where the checkpoint of this name lies."""
    return CHECKPOINT_FOLDER / f"{name}.pt"


def save_checkpoint(name: str, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    path = checkpoint_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def load_checkpoint(name: str) -> dict[str, Any] | None:
    """Read a checkpoint; None where there is none."""
    path = checkpoint_path(name)
    return torch.load(path, weights_only=True) if path.exists() else None
