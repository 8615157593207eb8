"""Families outside of the own decoder, through transformers' modules: logits equal to a plain forward."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.engine.errors import CapabilityError, ModelLoadError
from branchwise.engine.exec.packed_check import check_packed
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import LoadedModel, open_model
from branchwise.engine.models.paged_hook import StepAttention
from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.params import GREEDY
from branchwise.engine.sched.plan import Span
from safetensors.torch import load_file, save_file
from support.driving import decode, run, scored_logprobs, table
from support.tiny import save_model

TOKENS = [(37 * i * i + 11 * i + 5) % 250 for i in range(90)]

FAMILIES: dict[str, dict[str, Any]] = {
    "Gemma2": {"sliding_window": 20, "query_pre_attn_scalar": 24},
    "Gemma3": {"sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"]},
    "Phi3": {"sliding_window": 20},
    "Olmo2": {},
    "GPTNeoX": {"rotary_pct": 0.25},
    "GPT2": {"n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 256},
    "Cohere": {},
    "Granite": {"logits_scaling": 3.0, "residual_multiplier": 0.7},
    "Mixtral": {"num_local_experts": 4},
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 48},
}


def _save(folder: Path, family: str, **extra: Any) -> Any:
    return save_model(folder, family, **{"num_hidden_layers": 2, **FAMILIES[family], **extra})


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    model = _save(folder, request.param)
    return open_model(folder), model


def _logits(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


def _logprobs(model: Any, tokens: list[int]) -> list[float]:
    logprobs = _logits(model, tokens).log_softmax(-1)[:-1]
    return logprobs.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


def test_logits_equal_a_plain_forward(pair: tuple[LoadedModel, Any]) -> None:
    opened, model = pair
    check_packed(opened)
    runner = Runner(opened, 40)
    for length in (1, 17, 64):
        span = Span(SeqId(1), 0, tuple(TOKENS[:length]), table(1, length), 0, keep_logits=True)
        run(runner, span)
        expected = _logits(model, TOKENS[:length])[-1]
        torch.testing.assert_close(runner.kept_logits(SeqId(1)), expected, rtol=0, atol=1e-4)


def test_chunks_equal_the_whole(pair: tuple[LoadedModel, Any]) -> None:
    opened, model = pair
    expected = _logprobs(model, TOKENS)
    for chunks in ([90], [1, 1, 88], [16, 33, 41]):
        assert scored_logprobs(Runner(opened, 10), TOKENS, chunks=chunks) == pytest.approx(expected, abs=1e-4)


def test_forks_of_a_shared_prefix_equal_each_alone(pair: tuple[LoadedModel, Any]) -> None:
    opened, model = pair
    runner = Runner(opened, 40)
    prompt = TOKENS[:50]
    run(runner, Span(SeqId(9), 0, tuple(prompt[:48]), table(1, 48), 0))
    branches = [[*prompt, 7 * i % 250] for i in range(4)]
    tables = [(*table(1, 48), *table(10 + 4 * i, 30)) for i in range(4)]
    drawn = decode(runner, tables, branches, [48] * 4, list(range(4)), 8, GREEDY)
    for branch, found in zip(branches, drawn, strict=True):
        tokens = [*branch, *(one.token for one in found)]
        expected = _logprobs(model, tokens)[len(branch) - 1 :]
        assert [one.logprob for one in found] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ],
)
def test_rope_scaling_that_is_exact_in_packed_batches(tmp_path: Path, scaling: dict[str, Any]) -> None:
    model = _save(tmp_path, "Olmo2", rope_parameters={"rope_theta": 10000.0, **scaling})
    found = scored_logprobs(Runner(open_model(tmp_path), 10), TOKENS, chunks=[40, 50])
    assert found == pytest.approx(_logprobs(model, TOKENS), abs=1e-4)


def test_bfloat16_runs(tmp_path: Path) -> None:
    model = _save(tmp_path, "Gemma2")
    opened = open_model(tmp_path, dtype="bfloat16")
    check_packed(opened)
    found = torch.tensor(scored_logprobs(Runner(opened, 10), TOKENS))
    assert float((found - torch.tensor(_logprobs(model, TOKENS))).abs().mean()) < 0.2


def test_a_classification_head_of_another_family(tmp_path: Path) -> None:
    model = save_model(tmp_path, "Gemma2", head="TokenClassification", num_labels=2, sliding_window=20)
    opened = open_model(tmp_path)
    assert (opened.info.head, opened.info.cost.head_columns) == ("reward", 2)
    span = Span(SeqId(1), 0, tuple(TOKENS), table(1, 90), 0, reward_at=(3, 89))
    (scores,) = run(Runner(opened, 10), span).scores
    expected = _logits(model, TOKENS)[[3, 89]].softmax(-1)[:, 1]
    assert scores.rewards == pytest.approx(expected.tolist(), abs=1e-5)


def test_cost_counts_matrices_and_only_the_experts_that_are_used(tmp_path: Path) -> None:
    _save(tmp_path, "Mixtral")
    tensors = load_file(tmp_path / "model.safetensors")
    matrices = {name: t.numel() for name, t in tensors.items() if "layers" in name and t.ndim == 2}
    experts = sum(size for name, size in matrices.items() if "experts" in name)
    info = open_model(tmp_path).info
    assert info.cost.block_params == sum(matrices.values()) - experts // 2
    assert (info.cost.layers, info.cost.attention_width, info.cost.hidden) == (2, 96, 48)
    assert (info.max_model_len, info.head, info.vocab_size) == (256, "lm", 300)


def test_deterministic_mode_is_refused(tmp_path: Path) -> None:
    _save(tmp_path, "Olmo2")
    with pytest.raises(CapabilityError, match="runs through transformers"):
        Runner(open_model(tmp_path), 10, deterministic=True)


def _refusal(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as error:
        open_model(folder)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def _edit(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rope_that_depends_on_the_batch_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    _save(tmp_path, "Phi3")
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "factor": 2.0}
    rope = {"rope_type": kind, "rope_theta": 1e4, "original_max_position_embeddings": 64, **factors}
    _edit(tmp_path / "config.json", rope_parameters=rope)
    assert f"rope type {kind!r} is not supported; supported are default, linear" in _refusal(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layer_types": ["linear_attention", "full_attention"]}, "layer type 'linear_attention'"),
        ({"quantization_config": {"quant_method": "awq"}}, "its weights are quantised"),
        ({"architectures": ["StableLmForCausalLM"], "model_type": "stablelm"}, "no attention backend"),
        ({"architectures": ["BertForMaskedLM"]}, "not supported"),
        ({"architectures": ["EvilForCausalLM"], "auto_map": {"AutoConfig": "x.Y"}}, "not supported"),
        ({"num_hidden_layers": "many"}, "config.json does not fit"),
        ({"hidden_size": 64}, "has shape"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    _save(tmp_path, "Olmo2")
    _edit(tmp_path / "config.json", **changed)
    assert message in _refusal(tmp_path)


def test_attention_sinks_are_refused_by_name(tmp_path: Path) -> None:
    save_model(tmp_path, "GptOss", num_local_experts=2, num_experts_per_tok=1, rope_parameters=None)
    assert "attention sinks" in _refusal(tmp_path)


def test_damaged_weights_give_one_line(tmp_path: Path) -> None:
    _save(tmp_path, "Olmo2")
    path = tmp_path / "model.safetensors"
    whole = load_file(path)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({key: t for key, t in whole.items() if key != name}, path)
    assert f"lacks the tensor {name}" in _refusal(tmp_path)
    save_file({**whole, name: torch.zeros(5, 7)}, path)
    assert f"tensor {name} has shape [5, 7]; config.json asks for [96, 48]" in _refusal(tmp_path)
    path.write_bytes(path.read_bytes()[:3000])
    assert "damaged or cut short (3000 bytes" in _refusal(tmp_path)


def test_a_model_that_packed_rows_would_break_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at opening sees a family whose attention does more than its call shows."""
    _save(tmp_path, "Olmo2")
    opened = open_model(tmp_path)
    attend = StepAttention.attend
    monkeypatch.setattr(
        StepAttention, "attend", lambda self, call: attend(self, call._replace(query=call.query.roll(1, 2)))
    )
    with pytest.raises(ModelLoadError, match="computes something else"):
        check_packed(opened)
