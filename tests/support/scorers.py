"""Tiny random step scorers in each published layout, and their scores as the model cards compute them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from branchwise.engine.text.step_format import Scorer
from safetensors.torch import load_file, save_file
from support.tiny import save_model, save_tokenizer

TURNS = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n\n{{ message.content | trim }}<|im_end|>"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n\n{%- endif -%}"
)
"""As Llama 3's template: one token ends a turn, and contents are trimmed."""

QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."


class SavedScorer:
    """The transformers model under a scorer, and what its layout adds to it."""

    def __init__(self, folder: Path, model: Any, head: dict[str, torch.Tensor]) -> None:
        from transformers import AutoTokenizer

        self.folder = folder
        self.model = model
        self.head = head
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def hidden(self, ids: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.model.model(torch.tensor([list(ids)])).last_hidden_state[0]

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(torch.tensor([list(ids)])).logits[0]


def save_scorer(folder: Path, scorer: Scorer, *, wrapped: bool = False, **overrides: Any) -> SavedScorer:
    """Save a random scorer as it is published; `wrapped`: with the names of a value-head wrapper."""
    match scorer:
        case Scorer.QWEN_MATH:
            model = save_model(folder, "Qwen2", **overrides)
            save_tokenizer(folder, extra=("<extra_0>",))
            head = _layers(48, {"score.0": 48, "score.2": 2})
            _rewrite(folder, head, "Qwen2ForProcessRewardModel", drop="lm_head.weight")
        case Scorer.SKYWORK:
            model = save_model(folder, "Qwen2", **overrides)
            save_tokenizer(folder, bos_token="<|im_start|>")
            head = _layers(48, {"v_head.summary": 1})
            prefix = "pretrained_model." if wrapped else ""
            _rewrite(folder, head, "Qwen2ForCausalLM", prefix=prefix)
        case Scorer.RLHFLOW:
            model, head = save_model(folder, "Llama", **overrides), {}
            save_tokenizer(folder, chat_template=TURNS)
        case Scorer.MATH_SHEPHERD:
            model, head = save_model(folder, "Mistral", sliding_window=None, **overrides), {}
            save_tokenizer(folder, bos_token="<|im_start|>")
        case Scorer.CLASSIFICATION:
            raise ValueError("a classification head has no layout of its own")
    return SavedScorer(folder, model, head)


def published_scores(saved: SavedScorer, scorer: Scorer, problem: str, steps: Sequence[str]) -> list[float]:
    """One value per step, by the code of the scorer's model card: all steps at once, no cache."""
    return _PUBLISHED[scorer](saved, problem, steps)


def _qwen_math(saved: SavedScorer, problem: str, steps: Sequence[str]) -> list[float]:
    messages = [
        {"role": "system", "content": QWEN_SYSTEM},
        {"role": "user", "content": problem},
        {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
    ]
    text = saved.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    ids = saved.tokenizer.encode(text)
    inner = saved.hidden(ids) @ saved.head["score.0.weight"].T + saved.head["score.0.bias"]
    logits = inner.relu() @ saved.head["score.2.weight"].T + saved.head["score.2.bias"]
    mark = saved.tokenizer.encode("<extra_0>")[0]
    return logits.softmax(-1)[torch.tensor(ids) == mark, 1].tolist()


def _skywork(saved: SavedScorer, problem: str, steps: Sequence[str]) -> list[float]:
    encode = saved.tokenizer.encode
    ids, flags = encode(saved.tokenizer.bos_token + problem + "\n"), []
    for step in steps:
        ids += [*encode(step), encode("\n")[-1]]
        flags.append(len(ids) - 1)
    values = saved.hidden(ids) @ saved.head["v_head.summary.weight"].T + saved.head["v_head.summary.bias"]
    return values[flags, 0].sigmoid().tolist()


def _rlhflow(saved: SavedScorer, problem: str, steps: Sequence[str]) -> list[float]:
    labels = [saved.tokenizer.encode(label)[-1] for label in "+-"]
    conversation: list[dict[str, str]] = []
    scores = []
    for index, step in enumerate(steps):
        text = step if index else f"{problem} {step}"
        conversation += [{"role": "user", "content": text}, {"role": "assistant", "content": "+"}]
        ids = saved.tokenizer.encode(saved.tokenizer.apply_chat_template(conversation, tokenize=False))
        scores.append(float(saved.logits(ids)[-3, labels].softmax(-1)[0]))
    return scores


def _math_shepherd(saved: SavedScorer, problem: str, steps: Sequence[str]) -> list[float]:
    encode = saved.tokenizer.encode
    labels = [encode("+")[0], encode("-")[0]]
    output = "\n".join(f"Step {index + 1}: {step} ки" for index, step in enumerate(steps))
    ids = encode(f"{saved.tokenizer.bos_token}{problem} {output}")
    mark = encode("ки")
    places = [p for p in range(len(ids)) if ids[p - len(mark) + 1 : p + 1] == mark]
    return saved.logits(ids)[places][:, labels].softmax(-1)[:, 0].tolist()


_PUBLISHED = {
    Scorer.QWEN_MATH: _qwen_math,
    Scorer.SKYWORK: _skywork,
    Scorer.RLHFLOW: _rlhflow,
    Scorer.MATH_SHEPHERD: _math_shepherd,
}


def _layers(inputs: int, outputs: dict[str, int]) -> dict[str, torch.Tensor]:
    """Random weights and biases by the layers' names."""
    generator = torch.Generator().manual_seed(7)
    tensors: dict[str, torch.Tensor] = {}
    for name, width in outputs.items():
        tensors[f"{name}.weight"] = torch.randn(width, inputs, generator=generator) * 0.3
        tensors[f"{name}.bias"] = torch.randn(width, generator=generator)
    return tensors


def _rewrite(
    folder: Path, head: dict[str, torch.Tensor], architecture: str, *, drop: str = "", prefix: str = ""
) -> None:
    """Put a scorer's head beside the backbone, and its architecture in the configuration."""
    path = folder / "model.safetensors"
    backbone = {prefix + name: tensor for name, tensor in load_file(path).items() if name != drop}
    save_file({**backbone, **head}, path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
