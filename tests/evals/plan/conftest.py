"""The shape of a small model for plans."""

import json
from pathlib import Path
from typing import Any

import pytest

FIELDS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32_000,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
}


@pytest.fixture(scope="session")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model's config.json."""
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps(FIELDS))
    return path


@pytest.fixture(scope="session")
def scorer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config.json of a step scorer of the same shape."""
    path = tmp_path_factory.mktemp("scorer") / "config.json"
    path.write_text(json.dumps(FIELDS | {"architectures": ["LlamaForTokenClassification"], "num_labels": 2}))
    return path
