"""Peers get the same weights in the form that they read, made once."""

from pathlib import Path

import anyio
import gguf
import pytest
import torch
from branchwise.engine.errors import UsageError
from branchwise.engine.models.gguf import read_gguf
from branchwise.engine.models.open import open_model
from branchwise.evals.bench.gguf_file import write_gguf
from branchwise.evals.bench.peer_models import PeerModels
from branchwise.evals.bench.peer_process import PeerFailed
from safetensors.torch import load_file
from support.tiny import save_model

TOOL = """#!/bin/sh
echo "$@" >> "$0.calls"
for last; do :; done
mkdir -p "$last" && touch "$last/openvino_model.xml"
"""


def with_tool(folder: Path, script: str) -> Path:
    """An interpreter's path with `optimum-cli` beside it."""
    folder.mkdir()
    tool = folder / "optimum-cli"
    tool.write_text(script)
    tool.chmod(0o755)
    return folder / "python"


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_the_gguf_file_holds_the_weights_in_bfloat16(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path, family, tie_word_embeddings=family == "Llama")
    write_gguf(tmp_path, tmp_path / "model.gguf")
    monkeypatch.setattr("branchwise.engine.models.gguf.read_tokenizer", lambda metadata, path: None)
    file = read_gguf(tmp_path / "model.gguf")
    saved = load_file(tmp_path / "model.safetensors")
    assert set(file.tensors) == set(saved)
    for name, tensor in saved.items():
        kept = tensor if tensor.ndim == 1 else tensor.bfloat16().float()
        assert torch.equal(file.tensors[name], kept), name
    metadata = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert metadata["tokenizer.ggml.model"].contents() == "none"


def test_a_model_without_a_gguf_form_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path, "Mistral")
    with pytest.raises(UsageError, match="MistralForCausalLM with rope type default has no GGUF form here"):
        write_gguf(tmp_path, tmp_path / "model.gguf")


def test_a_form_is_made_once(folder: Path, tmp_path: Path) -> None:
    python = with_tool(tmp_path / "bin", TOOL)
    models = PeerModels(folder, tmp_path / "work")
    first = anyio.run(models.openvino, python)
    assert anyio.run(models.openvino, python) == first
    assert (first / "openvino_model.xml").is_file()
    (call,) = (tmp_path / "bin" / "optimum-cli.calls").read_text().splitlines()
    assert f"--model {folder} --task text-generation-with-past --weight-format fp16" in call
    written = anyio.run(models.gguf)
    assert anyio.run(models.gguf).stat().st_mtime_ns == written.stat().st_mtime_ns
    assert sorted(path.name for path in first.parent.iterdir()) == ["model.bf16.gguf", "openvino"]


def test_a_model_that_changed_is_made_anew(tmp_path: Path) -> None:
    save_model(tmp_path / "m", "Llama")
    before = anyio.run(PeerModels(tmp_path / "m", tmp_path / "work").gguf)
    save_model(tmp_path / "m", "Llama", seed=1, hidden_size=96)
    assert anyio.run(PeerModels(tmp_path / "m", tmp_path / "work").gguf) != before


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho no such task\nexit 3\n", r"did not export .* \(status 3: no such task\)"),
        ("#!/bin/sh\n", r"did not export .* \(status 0: it said nothing\)"),
        ("#!/absent/interpreter\n", "optimum-cli does not start .*optimum-intel"),
    ],
)
def test_an_export_that_fails_is_one_line_and_leaves_nothing(
    script: str, message: str, folder: Path, tmp_path: Path
) -> None:
    python = with_tool(tmp_path / "bin", script)
    with pytest.raises(PeerFailed, match=message) as raised:
        anyio.run(PeerModels(folder, tmp_path / "work").openvino, python)
    assert "\n" not in str(raised.value)
    assert [list(path.iterdir()) for path in (tmp_path / "work").iterdir()] == [[]]


def test_the_scorer_has_the_shape_and_other_weights(folder: Path, tmp_path: Path) -> None:
    path = anyio.run(PeerModels(folder, tmp_path).scorer)
    policy, scorer = open_model(folder), open_model(path)
    assert (policy.info.head, scorer.info.head) == ("lm", "reward")
    assert scorer.info.cost.block_params == policy.info.cost.block_params
    name = "model.layers.0.mlp.up_proj.weight"
    ours, theirs = (load_file(each / "model.safetensors")[name] for each in (folder, path))
    assert ours.shape == theirs.shape
    assert not torch.equal(ours, theirs)
