"""Published step scorers: recognised by their folders, and scored as their model cards do."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import LoadedModel, open_model
from branchwise.engine.protocol import SeqId
from branchwise.engine.sched.plan import Span
from branchwise.engine.text.step_format import Scorer, StepFormat
from safetensors.torch import load_file, save_file
from support.driving import run, table
from support.scorers import published_scores, save_scorer
from support.tiny import save_model

PROBLEM = "How many apples are 3 and 4?"
STEPS = ["There are 3 apples.", "Then 4 more come:\n3 + 4 = 7.", "The answer is 7."]
PUBLISHED = [scorer for scorer in Scorer if scorer is not Scorer.CLASSIFICATION]
FOLDERS = {
    Scorer.RLHFLOW: "Llama3.1-8B-PRM-Deepseek-Data",
    Scorer.MATH_SHEPHERD: "math-shepherd-mistral-7b-prm",
}


def _folder(tmp_path: Path, scorer: Scorer) -> Path:
    folder = tmp_path / FOLDERS.get(scorer, "model")
    folder.mkdir()
    return folder


def _encoded(opened: LoadedModel, problem: str, steps: list[str]) -> tuple[list[int], list[int]]:
    """Ids of prompt and steps, and the position of each step's score."""
    form, encode = opened.info.steps, opened.info.tokenizer.encode
    assert isinstance(form, StepFormat)
    ids, places = list(form.prompt(problem, encode)), []
    for index, step in enumerate(steps):
        ids += form.step(index, step, encode)
        places.append(len(ids) - 1)
    return ids, places


def _scores(opened: LoadedModel, ids: list[int], places: list[int]) -> list[float]:
    span = Span(SeqId(1), 0, tuple(ids), table(1, len(ids)), 0, reward_at=tuple(places))
    (scores,) = run(Runner(opened, 30), span).scores
    return list(scores.rewards)


@pytest.mark.parametrize("scorer", PUBLISHED)
def test_scores_equal_the_model_card(tmp_path: Path, scorer: Scorer) -> None:
    folder = _folder(tmp_path, scorer)
    saved = save_scorer(folder, scorer)
    opened = open_model(folder)
    assert opened.info.head == "reward"
    found = _scores(opened, *_encoded(opened, PROBLEM, STEPS))
    assert found == pytest.approx(published_scores(saved, scorer, PROBLEM, STEPS), abs=1e-5)
    assert len(set(found)) == len(STEPS)


@pytest.mark.parametrize("scorer", PUBLISHED)
def test_blanks_around_steps_do_not_count(tmp_path: Path, scorer: Scorer) -> None:
    folder = _folder(tmp_path, scorer)
    save_scorer(folder, scorer)
    opened = open_model(folder)
    written = [step + "\n\n" for step in STEPS]
    assert _encoded(opened, PROBLEM + "\n", written) == _encoded(opened, PROBLEM, STEPS)


def test_a_value_head_inside_its_wrapper_is_the_same_model(tmp_path: Path) -> None:
    bare, wrapped = tmp_path / "bare", tmp_path / "wrapped"
    bare.mkdir()
    wrapped.mkdir()
    save_scorer(bare, Scorer.SKYWORK)
    save_scorer(wrapped, Scorer.SKYWORK, wrapped=True)
    one, other = open_model(bare), open_model(wrapped)
    assert one.info.weights_digest == other.info.weights_digest
    assert one.info.cost == other.info.cost


@pytest.mark.parametrize("scorer", [Scorer.RLHFLOW, Scorer.MATH_SHEPHERD])
def test_only_the_label_columns_of_the_vocabulary_are_computed(tmp_path: Path, scorer: Scorer) -> None:
    folder = _folder(tmp_path, scorer)
    saved = save_scorer(folder, scorer)
    opened = open_model(folder)
    assert (opened.decoder.columns, opened.info.cost.head_columns) == (2, 2)
    labels = [saved.tokenizer.encode(label)[0] for label in "-+"]
    values = opened.decoder.head(_before_norm(saved, [1, 2, 3]), None)
    torch.testing.assert_close(values, saved.logits([1, 2, 3])[:, labels], rtol=0, atol=1e-5)


def _before_norm(saved: Any, ids: list[int]) -> torch.Tensor:
    """Hidden states as the own decoder hands them to its head."""
    found: list[torch.Tensor] = []
    hook = saved.model.model.norm.register_forward_pre_hook(lambda module, args: found.append(args[0]))
    saved.hidden(ids)
    hook.remove()
    return found[0][0]


def test_label_tokens_of_a_family_outside_of_the_own_decoder(tmp_path: Path) -> None:
    model = save_model(tmp_path, "Gemma2", sliding_window=20)
    (tmp_path / "branchwise.json").write_text(json.dumps({"scorer": "math-shepherd"}))
    opened = open_model(tmp_path)
    assert (opened.info.head, opened.decoder.columns) == ("reward", 2)
    ids, places = _encoded(opened, PROBLEM, STEPS)
    labels = [opened.info.tokenizer.encode(label)[0] for label in "+-"]
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0]
    expected = logits[places][:, labels].softmax(-1)[:, 0].tolist()
    assert _scores(opened, ids, places) == pytest.approx(expected, abs=1e-5)


def test_cost_of_two_layers_counts_both(tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.QWEN_MATH)
    assert open_model(tmp_path).info.cost.heads(1) == 2 * 48 * (48 + 2)


def test_notes_name_a_scorer_that_nothing_else_shows(tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.RLHFLOW)
    assert open_model(tmp_path).info.head == "lm"
    (tmp_path / "branchwise.json").write_text(json.dumps({"scorer": "rlhflow-prm"}))
    assert open_model(tmp_path).info.head == "reward"


def _refusal(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as error:
        open_model(folder)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


@pytest.mark.parametrize(
    ("scorer", "tensor"),
    [
        (Scorer.QWEN_MATH, "score.0.weight"),
        (Scorer.QWEN_MATH, "model.layers.1.mlp.up_proj.weight"),
        (Scorer.SKYWORK, "model.norm.weight"),
    ],
)
def test_missing_tensors_are_named(tmp_path: Path, scorer: Scorer, tensor: str) -> None:
    save_scorer(tmp_path, scorer)
    path = tmp_path / "model.safetensors"
    save_file({name: t for name, t in load_file(path).items() if name != tensor}, path)
    assert f"lacks the tensor {tensor}" in _refusal(tmp_path)


def test_a_head_of_another_shape_is_named(tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.QWEN_MATH)
    path = tmp_path / "model.safetensors"
    save_file({**load_file(path), "score.2.weight": torch.zeros(2, 47)}, path)
    assert "score.2.weight has shape [2, 47]; config.json asks for [2, 48]" in _refusal(tmp_path)


def test_a_damaged_scorer_gives_one_line(tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.SKYWORK)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert "damaged or cut short (1000 bytes" in _refusal(tmp_path)


def test_unknown_layouts_name_the_known_ones(tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.QWEN_MATH)
    path = tmp_path / "model.safetensors"
    save_file({name: t for name, t in load_file(path).items() if "score" not in name}, path)
    assert "has no head that is known" in _refusal(tmp_path)
    (tmp_path / "branchwise.json").write_text(json.dumps({"scorer": "qwen2.5-math-prm"}))
    assert "lacks the tensor score.2.weight" in _refusal(tmp_path)
    (tmp_path / "branchwise.json").write_text(json.dumps({"scorer": "qwen"}))
    assert "scorer 'qwen' is not known; known are qwen2.5-math-prm, skywork" in _refusal(tmp_path)


def test_a_scorer_without_its_separator_is_refused(tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.QWEN_MATH)
    save_model(tmp_path / "plain", "Qwen2")
    (tmp_path / "tokenizer.json").write_bytes((tmp_path / "plain" / "tokenizer.json").read_bytes())
    assert "has the token <extra_0>; this one has not" in _refusal(tmp_path)


def test_a_template_that_changes_its_messages_is_refused(tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.RLHFLOW)
    (tmp_path / "branchwise.json").write_text(json.dumps({"scorer": "rlhflow-prm"}))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    assert "must show each message once" in _refusal(tmp_path)
