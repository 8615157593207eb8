"""The shipped model folders: tokenizer, loading by transformers, sizes, and no solver in the path."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.evals.reference.decoder import POLICY_CONFIG, Decoder
from branchwise.evals.reference.evaluate import random_play_solves
from branchwise.evals.reference.figures import README_PATH, figures_table, read_figures
from branchwise.evals.reference.folders import (
    MODELS_FOLDER,
    build_tokenizer,
    load_decoder,
    load_reward_model,
    read_config,
)
from branchwise.evals.reference.sampler import sample
from branchwise.evals.reference.tasks import arithmetic, arithmetic_replay, countdown, countdown_replay
from branchwise.evals.reference.tasks.trace import Split, split_completion
from branchwise.evals.reference.vocabulary import BOS, BOS_ID, PRINTABLE, SPECIALS, TOKENS, decode, encode
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

ROLES = {"policy": "policy", "draft": "draft", "prm": "prm", "prm-small": "prm", "prm-overfit": "prm"}
TOKENIZER = build_tokenizer()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def num_parameters(folder: Path) -> int:
    """Parameters by the sizes in the file's header."""
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = [tensor["shape"] for name, tensor in header.items() if name != "__metadata__"]
    return sum(int(torch.tensor(shape).prod()) for shape in shapes)


@given(st.text(PRINTABLE))
def test_every_printable_text_round_trips(text: str) -> None:
    token_ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    assert TOKENIZER.decode(token_ids, skip_special_tokens=False) == text
    assert encode(text) == token_ids
    assert decode(token_ids) == text


@given(st.lists(st.sampled_from([*SPECIALS, *"a <>/;12+"])).map("".join))
def test_special_tokens_are_one_id_each_amid_text(text: str) -> None:
    assert TOKENIZER.encode(text, add_special_tokens=False).ids == encode(text)


def test_the_vocabulary_is_ascii_and_at_most_sixteen_special_tokens() -> None:
    assert len(SPECIALS) <= 16
    assert len(PRINTABLE) == 95
    assert [TOKENIZER.token_to_id(token) for token in TOKENS] == list(range(len(TOKENS)))


@pytest.mark.parametrize("name", ROLES)
def test_the_tokenizer_loads_in_transformers_with_the_chat_template(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MODELS_FOLDER / name)
    messages = [
        {"role": "system", "content": "ignored"},
        {"role": "user", "content": "C1,2>3:"},
        {"role": "assistant", "content": "1+2"},
        {"role": "user", "content": "C3,4>7:"},
    ]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == f"{BOS}C3,4>7:"
    assert tokenizer.encode("C3,4>7:</think>") == encode("C3,4>7:</think>")
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 0)


@pytest.mark.parametrize(("name", "role"), ROLES.items())
def test_the_profile_names_the_markers(name: str, role: str) -> None:
    document = json.loads((MODELS_FOLDER / name / "branchwise.json").read_text())
    assert document["role"] == role
    assert document["deterministic"] is True
    profile = document["profile"]
    assert (profile["step_mark"], profile["think_end"], profile["wait"]) == (";", "</think>", "<wait>")
    assert profile["stop"] == ["<eos>"]


def test_parameter_counts_are_within_the_limits() -> None:
    policy = num_parameters(MODELS_FOLDER / "policy")
    assert 300_000 <= policy <= 1_500_000
    assert num_parameters(MODELS_FOLDER / "draft") < policy / 4
    assert num_parameters(MODELS_FOLDER / "prm-small") < policy / 2


@pytest.mark.parametrize("name", ["policy", "draft"])
def test_language_models_equal_transformers(name: str) -> None:
    token_ids = torch.tensor([[BOS_ID, *encode("C3,7,12>43:12*3=36>7,36;36+7=43>43;</think>12*3+7")]])
    model = AutoModelForCausalLM.from_pretrained(MODELS_FOLDER / name, dtype=torch.float32)
    with torch.inference_mode():
        assert torch.allclose(
            model(token_ids).logits, load_decoder(MODELS_FOLDER / name)(token_ids), atol=1e-4
        )


@pytest.mark.parametrize("name", ["prm", "prm-small", "prm-overfit"])
def test_reward_models_equal_transformers(name: str) -> None:
    token_ids = torch.tensor([[BOS_ID, *encode("C3,7,12>43:12*3=36>7,36;36+7=43>43;")]])
    model = AutoModelForTokenClassification.from_pretrained(MODELS_FOLDER / name, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(token_ids).logits
        assert logits.shape == (1, token_ids.shape[1], 1)
        assert torch.allclose(logits[..., 0], load_reward_model(MODELS_FOLDER / name)(token_ids), atol=1e-4)


def test_transformers_generates_what_the_own_sampler_does() -> None:
    prompt = "C3,7,12>43:"
    model: Any = AutoModelForCausalLM.from_pretrained(MODELS_FOLDER / "policy", dtype=torch.float32)
    prompt_ids = torch.tensor([[BOS_ID, *encode(prompt)]])
    generated = model.generate(prompt_ids, max_new_tokens=96, do_sample=False)[0, prompt_ids.shape[1] :]
    policy = load_decoder(MODELS_FOLDER / "policy")
    [[completion]] = sample(policy, [prompt], 1, 0.0, torch.Generator(), max_new_tokens=96)
    assert completion.token_ids == generated.tolist()


def test_greedy_completions_parse_and_mostly_follow_the_rules() -> None:
    policy = load_decoder(MODELS_FOLDER / "policy")
    rng = random.Random(3)
    for task, replay in ((countdown, countdown_replay), (arithmetic, arithmetic_replay)):
        instances = [task.generate(rng, Split.HELD_OUT) for _ in range(40)]
        groups = sample(policy, [task.prompt(i) for i in instances], 1, 0.0, torch.Generator())
        completions = [group[0].text for group in groups]
        assert sum(split_completion(text)[1] is not None for text in completions) >= 38
        results = [replay.replay_completion(i, text) for i, text in zip(instances, completions, strict=True)]
        assert sum(result.correct for result in results) >= 10


def test_random_weights_solve_no_more_than_random_legal_play() -> None:
    """So no solver stands in the path: what is solved, the weights solve."""
    torch.manual_seed(0)
    model = Decoder(POLICY_CONFIG).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            torch.nn.init.normal_(parameter, std=0.05)
    rng = random.Random(0)
    instances = [countdown.generate(rng, Split.HELD_OUT) for _ in range(50)]
    prompts = [countdown.prompt(instance) for instance in instances]
    groups = sample(model, prompts, 4, 1.0, torch.Generator().manual_seed(0), max_new_tokens=48)
    solved = sum(
        any(countdown_replay.replay_completion(instance, completion.text).correct for completion in group)
        for instance, group in zip(instances, groups, strict=True)
    )
    assert solved <= sum(random_play_solves(rng, instance, 4) for instance in instances)
    assert solved == 0


def test_read_config_gives_the_sizes_that_were_written() -> None:
    assert read_config(MODELS_FOLDER / "policy") == POLICY_CONFIG


def test_the_readme_shows_the_shipped_figures() -> None:
    assert figures_table(read_figures()) in README_PATH.read_text()
