"""GGUF files written by the tests: equal to the folders they were made of."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.gguf import dequantised_bytes, open_gguf, to_transformers
from branchwise.engine.models.open import LoadedModel, open_model
from structlog.testing import capture_logs
from support.driving import scored_logprobs
from support.ggml import write_gguf
from support.tiny import save_model

TOKENS = [(29 * i * i + 3 * i + 1) % 250 for i in range(60)]


def _made(tmp_path: Path, family: str, **options: Any) -> tuple[Path, LoadedModel]:
    folder = tmp_path / "folder"
    save_model(folder, family, **options.pop("fields", {}))
    path = tmp_path / "model.gguf"
    write_gguf(folder, path, **options)
    return path, open_model(folder)


def _logprobs(model: LoadedModel) -> list[float]:
    return scored_logprobs(Runner(model, 10), TOKENS)


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_equals_the_folder_it_was_made_of(tmp_path: Path, family: str) -> None:
    path, original = _made(tmp_path, family, fields={"rope_parameters": {"rope_theta": 10000.0}})
    model = open_model(path)
    assert _logprobs(model) == pytest.approx(_logprobs(original), abs=1e-5)
    tokenizer = model.info.tokenizer
    assert tokenizer.encode("Añb <think>x") == original.info.tokenizer.encode("Añb <think>x")
    assert model.info.profile == original.info.profile
    assert dequantised_bytes(open_gguf(path)) >= 4 * model.info.cost.block_params


def test_what_the_weights_will_take_is_told_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = _made(tmp_path, "Llama")
    megabytes = round(dequantised_bytes(open_gguf(path)) / 1e6, 1)

    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("branchwise.engine.models.gguf._tensors", full)
    with capture_logs() as events, pytest.raises(ModelLoadError):
        open_model(path)
    assert [(one["event"], one["file"], one["megabytes"]) for one in events] == [
        ("dequantising", "model.gguf", megabytes)
    ]
    assert megabytes == pytest.approx(original.weights_bytes / 1e6, abs=0.2)


def test_quantised_weights_stay_close(tmp_path: Path) -> None:
    fields = {"hidden_size": 96, "tie_word_embeddings": True}
    path, original = _made(tmp_path, "Llama", quantised=True, fields=fields)
    found, exact = torch.tensor(_logprobs(open_model(path))), torch.tensor(_logprobs(original))
    assert (found - exact).abs().mean() < 0.05 * exact.std()


def test_exported_folder_is_read_by_transformers(tmp_path: Path) -> None:
    import transformers

    path, original = _made(tmp_path, "Qwen2", fields={"tie_word_embeddings": True})
    to_transformers(path, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.encode("Aé<think>") == original.info.tokenizer.encode("Aé<think>")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.inference_mode():
        rows = model(torch.tensor([TOKENS])).logits[0].log_softmax(-1)[:-1]
    expected = rows.gather(-1, torch.tensor(TOKENS[1:])[:, None])[:, 0].tolist()
    assert _logprobs(original) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("size", [0, 3, 200, 30_000])
def test_a_cut_file_is_named(tmp_path: Path, size: int) -> None:
    path, _ = _made(tmp_path, "Llama")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelLoadError, match=rf"model.gguf is no GGUF file, or is cut short \({size} bytes"):
        open_model(path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"tokenizer": "bert"}, "tokenizer 'bert' is not supported; supported are gpt2 and llama"),
        ({"pre": "mystery"}, "pre-tokenizer 'mystery' is not supported"),
    ],
)
def test_other_tokenizers_are_refused(tmp_path: Path, extra: dict[str, str], message: str) -> None:
    path, _ = _made(tmp_path, "Llama", **extra)
    with pytest.raises(ModelLoadError, match=message):
        open_model(path)


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match="'mamba' is not supported; supported are llama, qwen2, qwen3"):
        open_model(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no file at .*absent\.gguf"):
        open_model(tmp_path / "absent.gguf")


def test_a_sentencepiece_vocabulary(tmp_path: Path) -> None:
    """Merges follow from the scores; unknown characters fall back to bytes."""
    from branchwise.engine.models.ggml_vocabulary import read_tokenizer

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "ab", "▁a", "▁ab"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0] * 259 + [-9.0, -9.0, -9.0, -1.0, -3.0, -2.0],
        "tokenizer.ggml.token_type": [2, 3, 3, *([6] * 256), *([1] * 6)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    tokenizer = read_tokenizer(metadata, tmp_path)
    ids = tokenizer.encode("ab é")
    assert [pieces[token] for token in ids] == ["▁ab", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == "ab é"
    assert tokenizer.eos_id == 2
