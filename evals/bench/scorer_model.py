"""A scorer for a benchmark: the policy's architecture with random weights and a reward head."""

import json
from pathlib import Path

import torch
from torch import Tensor

from ...engine.errors import UsageError
from ...engine.models.config import family_of, read_fields
from ...engine.models.folder import read_tensors

LABELS = 2


def write_scorer(folder: Path, target: Path) -> None:
    """Write under `target` a step scorer of the size of the language model in `folder`: its shape, its
    tokenizer, other weights. `UsageError` for a model that the own decoder does not know."""
    from safetensors.torch import save_file

    fields = read_fields(folder)
    if family_of(fields) is None:
        raise UsageError(f"{folder}: no scorer can be made of this architecture; give one with --prm")
    architecture = str(fields["architectures"][0]).replace("ForCausalLM", "ForTokenClassification")
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: _redrawn(tensor, generator)
        for name, tensor in read_tensors(folder).items()
        if name != "lm_head.weight"
    }
    hidden = int(fields["hidden_size"])
    tensors["score.weight"] = torch.randn(LABELS, hidden, generator=generator) * hidden**-0.5
    target.mkdir(parents=True)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    labels = {str(label): f"LABEL_{label}" for label in range(LABELS)}
    document = fields | {"architectures": [architecture], "num_labels": LABELS, "id2label": labels}
    (target / "config.json").write_text(json.dumps(document), encoding="utf-8")
    for path in folder.glob("tokenizer*.json"):
        (target / path.name).write_bytes(path.read_bytes())


def _redrawn(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Random values of the size of the given ones; norms and biases stay."""
    if tensor.ndim == 1:
        return tensor.float().contiguous()
    return torch.randn(tensor.shape, generator=generator) * tensor.float().std()
