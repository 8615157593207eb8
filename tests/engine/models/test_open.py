"""Model folders that are whole, and every way in which one can be broken: one line each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.models.open import open_model
from branchwise.engine.models.weights import digest
from branchwise.engine.sampling.params import SamplingParams
from safetensors.torch import load_file, save_file
from support.tiny import EOS_ID, VOCABULARY, save_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path, "Llama")
    return tmp_path


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def _refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(ModelLoadError) as error:
        open_model(folder, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_info_of_a_whole_folder(folder: Path) -> None:
    _edit(
        folder / "generation_config.json", lambda fields: fields.update(temperature=0.6, top_p=0.95, top_k=20)
    )
    info = open_model(folder, name="policy").info
    assert (info.name, info.head, info.vocab_size, info.max_model_len) == ("policy", "lm", VOCABULARY, 256)
    assert info.sampling == SamplingParams(temperature=0.6, top_p=0.95, top_k=20)
    assert info.profile.stop_ids >= {EOS_ID, info.tokenizer.token_id("<|im_end|>")}
    assert info.profile.think_end == "</think>"


def test_cost_counts_the_parameters_of_the_blocks(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    matrices = sum(t.numel() for name, t in tensors.items() if "layers" in name and t.ndim == 2)
    cost = open_model(folder).info.cost
    assert cost.block_params == matrices
    assert (cost.layers, cost.attention_width, cost.hidden) == (3, 96, 48)


def test_digest_tells_weights_apart(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = open_model(folder).info.weights_digest
    assert open_model(folder).info.weights_digest == first
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] += 1e-3
    save_file(tensors, folder / "model.safetensors")
    assert open_model(folder).info.weights_digest != first


def test_digest_reads_names_types_and_shapes() -> None:
    base = digest([("a", torch.zeros(4))])
    assert base == digest([("a", torch.zeros(4))])
    others = [("b", torch.zeros(4)), ("a", torch.zeros(2, 2)), ("a", torch.zeros(8, dtype=torch.bfloat16))]
    assert len({base, *(digest([part]) for part in others)}) == 4


def test_sharded_weights_equal_one_file(folder: Path) -> None:
    whole = open_model(folder).info.weights_digest
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {name: file for file, members in shards.items() for name in members}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert open_model(folder).info.weights_digest == whole
    (folder / "model-2.safetensors").unlink()
    assert "model-2.safetensors is missing" in _refusal(folder)


def test_no_folder(tmp_path: Path) -> None:
    assert f"no model at {tmp_path / 'absent'}" in _refusal(tmp_path / "absent")


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "has no config.json" in _refusal(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors" in _refusal(folder)


def test_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in _refusal(folder)


@pytest.mark.parametrize("size", [0, 5, 100, 20_000])
def test_truncated_weights(folder: Path, size: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    message = _refusal(folder)
    assert str(path) in message
    assert f"damaged or cut short ({size} bytes" in message


def test_missing_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    message = _refusal(folder)
    assert "lacks the tensor model.layers.1.mlp.up_proj.weight" in message
    assert "[96, 48]" in message


def test_wrong_shape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(47)
    save_file(tensors, folder / "model.safetensors")
    assert "model.norm.weight has shape [47]; config.json asks for [48]" in _refusal(folder)


def test_unknown_architecture_names_the_supported_ones(folder: Path) -> None:
    _edit(folder / "config.json", lambda fields: fields.update(architectures=["T5ForConditionalGeneration"]))
    message = _refusal(folder)
    assert "'T5ForConditionalGeneration': not supported" in message
    assert "llama, mistral, qwen2, qwen3" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope type 'longrope' is not supported"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            "rope type 'dynamic' is not supported",
        ),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"num_key_value_heads": 4}, "6 attention heads are not a multiple of 4"),
        ({"vocab_size": 100}, "shape [300, 48]"),
    ],
)
def test_unsupported_fields(folder: Path, change: dict[str, Any], message: str) -> None:
    _edit(folder / "config.json", lambda fields: fields.update(change))
    assert message in _refusal(folder)


def test_missing_field(folder: Path) -> None:
    _edit(folder / "config.json", lambda fields: fields.pop("num_hidden_layers"))
    assert "lacks 'num_hidden_layers'" in _refusal(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "branchwise.json"]
)
def test_files_that_are_no_json(folder: Path, name: str) -> None:
    (folder / name).write_text("{ not json")
    assert name in _refusal(folder)


def test_options_out_of_range(folder: Path) -> None:
    assert "max_model_len 257 is out of range; this model takes 2 to 256" in _refusal(
        folder, max_model_len=257
    )
    assert "dtype float16 is not supported" in _refusal(folder, dtype="float16")
    assert open_model(folder, max_model_len=64).info.max_model_len == 64


def test_own_profile_of_a_folder(folder: Path) -> None:
    profile = {"step_mark": ";", "think_end": "</think>", "wait": "<wait>", "stop": ["<|im_end|>"]}
    (folder / "branchwise.json").write_text(json.dumps({"profile": profile, "deterministic": True}))
    model = open_model(folder)
    assert model.deterministic
    found = model.info.profile
    assert (found.step_mark, found.think_end, found.wait, found.final_answer) == (
        ";",
        "</think>",
        "<wait>",
        "eos",
    )


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({"profile": {"step_mrak": ";"}}, "step_mrak"),
        ({"profile": {"final_answer": "box"}}, "final_answer is 'box'; it must be"),
        ({"profile": {"stop": ["nonsense"]}}, "stop 'nonsense' is not one token"),
        ({"profile": {"wait": 3}}, "Expected `str`"),
    ],
)
def test_a_wrong_profile_is_named(folder: Path, notes: dict[str, Any], message: str) -> None:
    (folder / "branchwise.json").write_text(json.dumps(notes))
    assert message in _refusal(folder)


@pytest.mark.parametrize("value", [0, -1, 1.5, "big", True, None])
@pytest.mark.parametrize(
    "name", ["num_hidden_layers", "hidden_size", "max_position_embeddings", "vocab_size"]
)
def test_sizes_that_are_no_sizes(folder: Path, name: str, value: object) -> None:
    _edit(folder / "config.json", lambda fields: fields.update({name: value}))
    assert f"{name} is {value!r}" in _refusal(folder)


@pytest.mark.parametrize("value", [None, 0, -1e-5, 2.0, "small"])
def test_an_epsilon_that_is_none(folder: Path, value: object) -> None:
    _edit(folder / "config.json", lambda fields: fields.update(rms_norm_eps=value))
    assert "rms_norm_eps" in _refusal(folder)
