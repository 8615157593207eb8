"""The own decoder against transformers, on tiny random models of each architecture."""

from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import open_model
from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.params import GREEDY
from branchwise.engine.sched.plan import ModelPlan, Span
from hypothesis import given, settings
from hypothesis import strategies as st
from support.driving import decode, run, scored_logprobs, table
from support.tiny import FAMILIES, save_model

TOKENS = [(37 * i * i + 11 * i + 5) % 250 for i in range(150)]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    extra: dict[str, Any] = {"sliding_window": 40} if request.param == "Mistral" else {}
    return folder, save_model(folder, request.param, **extra)


def _reference_logprobs(model: Any, tokens: list[int]) -> torch.Tensor:
    """Log-probabilities of the tokens after the first, from one full forward of transformers."""
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0]
    return logits.log_softmax(-1)[:-1].gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0]


def _logits(runner: Runner, tokens: list[int]) -> torch.Tensor:
    """Logits of the last row, through the runner's own path."""
    kept = Span(SeqId(5), 0, tuple(tokens), table(1, len(tokens)), 0, keep_logits=True)
    run(runner, kept)
    return runner.kept_logits(SeqId(5))


@pytest.mark.parametrize("deterministic", [False, True])
def test_logits_equal_transformers(pair: tuple[Path, Any], deterministic: bool) -> None:
    folder, model = pair
    runner = Runner(open_model(folder), 40, deterministic=deterministic)
    for length in (1, 2, 17, 64, 129):
        with torch.inference_mode():
            expected = model(torch.tensor([TOKENS[:length]])).logits[0, -1]
        torch.testing.assert_close(_logits(runner, TOKENS[:length]), expected, rtol=0, atol=1e-4)


@pytest.mark.pins("vllm#29216", "vllm#41411")
@pytest.mark.parametrize("deterministic", [False, True])
def test_chunked_prefill_equals_the_whole(pair: tuple[Path, Any], deterministic: bool) -> None:
    folder, model = pair
    runner = Runner(open_model(folder), 40, deterministic=deterministic)
    expected = _reference_logprobs(model, TOKENS).tolist()
    for chunks in ([150], [1] * 5 + [145], [16, 16, 118], [100, 1, 49], [70, 80]):
        found = scored_logprobs(runner, TOKENS, chunks=chunks)
        assert len(found) == len(TOKENS) - 1
        assert found == pytest.approx(expected, abs=1e-4)


def test_decode_over_a_shared_prefix_equals_transformers(pair: tuple[Path, Any]) -> None:
    folder, model = pair
    runner = Runner(open_model(folder), 60)
    prompt = TOKENS[:100]
    run(runner, Span(SeqId(9), 0, tuple(prompt[:96]), table(1, 96), 0))
    branches = [[*prompt, 7 * i % 250] for i in range(5)]
    tables = [(*table(1, 96), *table(10 + 4 * i, 40)) for i in range(5)]
    drawn = decode(runner, tables, branches, [96] * 5, list(range(5)), 20, GREEDY)
    for branch, found in zip(branches, drawn, strict=True):
        tokens = [*branch, *(one.token for one in found)]
        expected = _reference_logprobs(model, tokens)[len(branch) - 1 :].tolist()
        assert [one.logprob for one in found] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "truncate": False},
    ],
)
def test_rope_scaling_equals_transformers(tmp_path: Path, scaling: dict[str, Any]) -> None:
    model = save_model(tmp_path, "Llama", rope_parameters={"rope_theta": 10000.0, **scaling})
    found = scored_logprobs(Runner(open_model(tmp_path), 20), TOKENS)
    assert found == pytest.approx(_reference_logprobs(model, TOKENS).tolist(), abs=1e-4)


def test_qwen_windows_layers_from_max_window_layers_on(tmp_path: Path) -> None:
    fields = {"use_sliding_window": True, "sliding_window": 30, "max_window_layers": 1}
    model = save_model(tmp_path, "Qwen2", **fields)
    opened = open_model(tmp_path)
    assert opened.decoder.shape.windows == (None, 30, 30)
    for deterministic in (False, True):
        runner = Runner(opened, 20, deterministic=deterministic)
        found = scored_logprobs(runner, TOKENS, chunks=[90, 60])
        assert found == pytest.approx(_reference_logprobs(model, TOKENS).tolist(), abs=1e-4)


@pytest.mark.parametrize("extra", [{"attention_bias": True, "mlp_bias": True}, {"tie_word_embeddings": True}])
def test_llama_with_biases_or_a_tied_head(tmp_path: Path, extra: dict[str, Any]) -> None:
    model = save_model(tmp_path, "Llama", **extra)
    found = scored_logprobs(Runner(open_model(tmp_path), 20), TOKENS)
    assert found == pytest.approx(_reference_logprobs(model, TOKENS).tolist(), abs=1e-4)


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
@pytest.mark.parametrize("labels", [1, 2])
def test_reward_heads_equal_transformers(tmp_path: Path, family: str, labels: int) -> None:
    model = save_model(tmp_path, family, head="TokenClassification", num_labels=labels)
    opened = open_model(tmp_path)
    assert opened.info.head == "reward"
    assert opened.info.cost.head_columns == labels
    places = (0, 40, 149)
    span = Span(SeqId(1), 0, tuple(TOKENS), table(1, 150), 0, reward_at=places)
    (scores,) = run(Runner(opened, 20), span).scores
    with torch.inference_mode():
        values = model(torch.tensor([TOKENS])).logits[0, list(places)]
    expected = values.softmax(-1)[:, 1] if labels == 2 else values[:, 0].sigmoid()
    assert scores.rewards == pytest.approx(expected.tolist(), abs=1e-5)


def test_bfloat16_is_as_close_as_transformers_own(tmp_path: Path) -> None:
    model = save_model(tmp_path, "Llama")
    exact = _reference_logprobs(model, TOKENS)
    rounded = _reference_logprobs(model.to(torch.bfloat16), TOKENS).float()
    found = torch.tensor(scored_logprobs(Runner(open_model(tmp_path, dtype="bfloat16"), 20), TOKENS))
    assert (found - exact).abs().mean() < 2 * (rounded - exact).abs().mean() + 1e-3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_deterministic_bits_do_not_depend_on_threads(tmp_path: Path, dtype: str) -> None:
    save_model(tmp_path, "Qwen3")
    model = open_model(tmp_path, dtype=dtype)
    alone = scored_logprobs(Runner(model, 40, deterministic=True), TOKENS, chunks=[1, 40, 109])
    torch.set_num_threads(2)
    try:
        assert scored_logprobs(Runner(model, 40, deterministic=True), TOKENS) == alone
    finally:
        torch.set_num_threads(1)


@settings(max_examples=20)
@given(data=st.data(), dtype=st.sampled_from(["float32", "bfloat16"]))
def test_a_deterministic_row_keeps_its_bits(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dtype: str
) -> None:
    """Alone, beside any others, in any chunks, on shared or own blocks."""
    folder = tmp_path_factory.getbasetemp() / "deterministic"
    if not folder.exists():
        folder.mkdir()
        save_model(folder, "Llama")
    model = open_model(folder, dtype=dtype)
    length = data.draw(st.integers(2, 120))
    tokens = [(token + length) % 250 for token in TOKENS[:length]]
    base = scored_logprobs(Runner(model, 60, deterministic=True), tokens)
    runner = Runner(model, 60, deterministic=True)
    start, found = 0, []
    while start < length:
        count = data.draw(st.integers(1, length - start))
        stop = start + count
        places = tuple(p for p in range(start, stop) if p + 1 < length)
        span = Span(
            SeqId(1),
            start,
            tuple(tokens[start:stop]),
            table(1, stop),
            start,
            logprob_at=places,
            targets=tuple(tokens[p + 1] for p in places),
        )
        others = [
            Span(SeqId(2 + i), 0, tuple(TOKENS[i : i + rows]), table(10 + 5 * i, rows), 0, reward_at=())
            for i, rows in enumerate(data.draw(st.lists(st.integers(1, 60), max_size=6)))
        ]
        position = data.draw(st.integers(0, len(others)))
        spans = (*others[:position], span, *others[position:])
        result = runner.execute(ModelPlan(model="policy", spans=spans))
        found += [value for part in result.scores if part.seq == 1 for value in part.logprobs]
        start = stop
    assert found == base
