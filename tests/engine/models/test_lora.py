"""LoRA adapters in PEFT's layout, written by hand: merged they equal a merged transformers model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.engine.engine import Engine
from branchwise.engine.errors import ModelLoadError, UsageError
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.lora import TARGETS
from branchwise.engine.models.open import open_model
from branchwise.engine.opening import load_models
from branchwise.engine.protocol import EngineUsage, ScoreParams, Unlimited
from safetensors.torch import save_file
from support.driving import scored_logprobs
from support.tiny import save_adapter, save_model

TOKENS = [(position * 7) % 250 for position in range(60)]
METER = Unlimited()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("models") / "base"
    return folder, save_model(folder, "Qwen3", num_hidden_layers=2)


def expected_logprobs(model: Any, folder: Path, scale: dict[str, float]) -> list[float]:
    """What transformers gives with `scale[kind] * B @ A` added to the weights."""
    from safetensors.torch import load_file

    factors = load_file(folder / "adapter_model.safetensors")
    before = {
        name: module.weight.detach().clone()
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in TARGETS
    }
    with torch.no_grad():
        for name, weight in before.items():
            down, up = (factors[f"base_model.model.{name}.lora_{factor}.weight"] for factor in "AB")
            kind = name.rpartition(".")[2]
            model.get_submodule(name).weight.copy_(weight + scale.get(kind, scale["*"]) * up @ down)
        logits = model(torch.tensor([TOKENS])).logits[0]
        for name, weight in before.items():
            model.get_submodule(name).weight.copy_(weight)
    found = logits[:-1].log_softmax(-1).gather(-1, torch.tensor(TOKENS[1:])[:, None])[:, 0]
    return found.tolist()


@pytest.mark.parametrize(
    ("fields", "scale"),
    [
        ({}, {"*": 2.0}),
        ({"use_rslora": True}, {"*": 4.0}),
        (
            {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"self_attn.o_proj": 2}},
            {"*": 2.0, "q_proj": 4.0, "o_proj": 0.5},
        ),
    ],
    ids=["plain", "rslora", "patterns"],
)
def test_a_merged_adapter_equals_transformers(
    base: tuple[Path, Any], tmp_path: Path, fields: dict[str, Any], scale: dict[str, float]
) -> None:
    folder, model = base
    adapter = save_adapter(tmp_path / "adapter", model, **fields)
    runner = Runner(open_model(folder, adapter=adapter), 20)
    expected = expected_logprobs(model, adapter, scale)
    assert scored_logprobs(runner, TOKENS) == pytest.approx(expected, abs=1e-4)
    plain = scored_logprobs(Runner(open_model(folder), 20), TOKENS)
    assert max(abs(a - b) for a, b in zip(plain, expected, strict=True)) > 0.1


def test_roots_tell_revisions_and_adapters_apart(base: tuple[Path, Any], tmp_path: Path) -> None:
    """The same weights loaded again hit, other weights or another adapter miss: in pairs."""
    folder, model = base
    first = save_adapter(tmp_path / "first", model)
    second = save_adapter(tmp_path / "second", model, seed=2)
    scaled = save_adapter(tmp_path / "scaled", model, lora_alpha=16)
    save_model(tmp_path / "other", "Qwen3", num_hidden_layers=2, seed=5)

    def root(source: Path, adapter: Path | None = None) -> bytes:
        models = load_models(
            {"policy": source}, kv_memory=1 << 20, adapters={"policy": adapter} if adapter else {}
        )
        return Engine(models).scheduler.memories["policy"].index.root("tenant")

    assert root(folder) == root(folder)
    assert root(folder, first) == root(folder, first)
    roots = [
        root(folder),
        root(tmp_path / "other"),
        root(folder, first),
        root(folder, second),
        root(folder, scaled),
    ]
    assert len(set(roots)) == len(roots)


@pytest.mark.anyio
async def test_base_and_adapted_model_share_no_prefix(
    base: tuple[Path, Any], tmp_path: Path, anyio_backend: str
) -> None:
    folder, model = base
    adapter = save_adapter(tmp_path / "adapter", model)
    engine = await Engine.open_models(
        {"policy": folder, "adapted": folder}, kv_memory=2 << 20, adapters={"adapted": adapter}, check=True
    )
    assert engine.models["policy"].weights_digest == engine.models["adapted"].weights_digest
    async with engine:
        scores, cached = [], []
        for role in ("policy", "adapted", "adapted"):
            usage = EngineUsage()
            seq = engine.open(TOKENS, seed=1, model=role, usage=usage)
            scores.append((await engine.score(seq, ScoreParams(logprobs_from=59), METER)).logprobs)
            cached.append(usage.cached_tokens)
        assert cached == [0, 0, 48]
        assert scores[0] != scores[1]
        assert scores[1] == pytest.approx(scores[2], abs=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type 'IA3' is not supported"),
        ({"use_dora": True}, "sets use_dora"),
        ({"bias": "all"}, "sets bias"),
        ({"modules_to_save": ["lm_head"]}, "sets modules_to_save"),
        ({"r": 0}, "a rank of 0 is out of range"),
        ({"r": "four"}, "Expected `int`"),
    ],
)
def test_what_a_merge_cannot_do_is_refused_in_one_line(
    base: tuple[Path, Any], tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    folder, model = base
    adapter = save_adapter(tmp_path / "adapter", model, **fields)
    with pytest.raises(ModelLoadError, match=message) as caught:
        open_model(folder, adapter=adapter)
    assert "\n" not in str(caught.value)


def test_factors_that_do_not_fit_are_refused(base: tuple[Path, Any], tmp_path: Path) -> None:
    folder, model = base
    adapter = save_adapter(tmp_path / "adapter", model)
    key = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    cases = {
        "only one of the two": {key.format("A"): torch.zeros(4, 48)},
        "shapes": {key.format("A"): torch.zeros(4, 47), key.format("B"): torch.zeros(96, 4)},
        "does not have": {
            key.format("A").replace(".0.", ".9."): torch.zeros(4, 48),
            key.format("B").replace(".0.", ".9."): torch.zeros(96, 4),
        },
        "is not supported": {"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 48)},
        "no LoRA factors": {},
    }
    for message, tensors in cases.items():
        save_file(tensors, adapter / "adapter_model.safetensors")
        with pytest.raises(ModelLoadError, match=message):
            open_model(folder, adapter=adapter)
    (adapter / "adapter_model.safetensors").write_bytes(b"short")
    with pytest.raises(ModelLoadError, match="damaged or cut short"):
        open_model(folder, adapter=adapter)
    with pytest.raises(ModelLoadError, match="no adapter at"):
        open_model(folder, adapter=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="an adapter for 'draft', which is not open"):
        load_models({"policy": folder}, adapters={"draft": adapter})
