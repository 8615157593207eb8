"""Thinking markers: which family a tokenizer and its template show, and how a folder names another."""

import json
from pathlib import Path
from typing import Any

import pytest
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.text.families import FAMILIES, named_family
from branchwise.engine.text.profile import ModelProfile, load_profile, read_notes
from branchwise.engine.text.stop import Stop, StopChecker, StopRule, Until
from branchwise.engine.text.tokenizer import HfTokenizer
from support.tiny import save_tokenizer

HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>")


def tokenizer(folder: Path, template: str, *extra: str) -> HfTokenizer:
    """A byte-level tokenizer whose special tokens hold the `extra` ones."""
    save_tokenizer(folder, extra=extra, chat_template=template)
    return HfTokenizer.open(folder)


def profile(found: HfTokenizer, **override: Any) -> ModelProfile:
    notes = read_notes({"profile": override}, "branchwise.json") if override else None
    return load_profile(found, None if notes is None else notes.profile, [], "branchwise.json")


SHOWN = [
    ("think", "{{ messages }}<think>\n", ()),
    ("think", "{% if '</think>' in messages[0].content %}x{% endif %}", ()),
    ("magistral", "[THINK]{{ messages }}[/THINK]", ("[THINK]", "[/THINK]")),
    ("seed-oss", "<seed:think>{{ messages }}", ("<seed:think>", "</seed:think>")),
    ("exaone-deep", "{{ messages }}<thought>\n", ("<thought>", "</thought>")),
    ("kimi", "{{ messages }}◁think▷", ("◁think▷", "◁/think▷")),
    ("harmony", "{{ '<|start|>assistant<|channel|>analysis<|message|>' }}", HARMONY),
]


@pytest.mark.parametrize(("name", "template", "extra"), SHOWN)
def test_a_template_that_speaks_of_marker_tokens_shows_the_family(
    tmp_path: Path, name: str, template: str, extra: tuple[str, ...]
) -> None:
    family = named_family(name)
    assert family is not None
    found = profile(tokenizer(tmp_path, template, *extra))
    assert (found.think_start, found.think_end) == (family.think_start, family.think_end)
    assert found.thinks
    assert (found.wait, found.final_answer) == ("Wait", "boxed")
    assert (found.probe or "").endswith("\\boxed{")


@pytest.mark.parametrize(
    ("template", "extra"),
    [
        ("{{ messages }}", ()),
        ("[THINK]{{ messages }}[/THINK]", ()),
        ("{{ 'Here is my thought process:' }}{{ 'Here is my response:' }}", ()),
        ("{% if enable_thinking %}<|think|>{% endif %}<channel|>", ("<|channel>", "<channel|>")),
    ],
)
def test_markers_that_are_no_tokens_or_only_answer_a_request_show_nothing(
    tmp_path: Path, template: str, extra: tuple[str, ...]
) -> None:
    assert not profile(tokenizer(tmp_path, template, *extra)).thinks


def test_the_end_of_the_analysis_channel_ends_no_turn(tmp_path: Path) -> None:
    found = tokenizer(tmp_path, "<|start|><|channel|>analysis<|message|><|end|>", *HARMONY)
    assert found.token_id("<|end|>") not in profile(found).stop_ids


def test_a_marker_of_many_tokens_ends_thinking(tmp_path: Path) -> None:
    found = tokenizer(tmp_path, "<|start|><|channel|>analysis<|message|><|end|>", *HARMONY)
    markers = profile(found)
    checker = StopChecker(StopRule(until=Until.THINK), markers, found, found.encode("<|start|>assistant"))
    text = f"{markers.think_start}1+1<|end|>x{markers.think_end}"
    stops = [checker.push(token) for token in found.encode(text)]
    assert stops[-1] is Stop.THINK_END
    assert set(stops[:-1]) == {None}


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_a_folder_may_name_any_family(tmp_path: Path, family: str) -> None:
    found = profile(tokenizer(tmp_path, "{{ messages }}"), family=family)
    known = named_family(family)
    assert known is not None
    assert (found.think_end, found.final_answer) == (known.think_end, "boxed")


def test_single_fields_go_before_the_family(tmp_path: Path) -> None:
    found = profile(
        tokenizer(tmp_path, "{{ messages }}"), family="s1", wait="Hmm", final_answer="eos", probe=None
    )
    assert (found.think_end, found.wait) == ("<|im_start|>answer\n", "Hmm")
    assert (found.final_answer, found.probe) == ("eos", None)


def test_a_folder_without_a_family_describes_its_own_text(tmp_path: Path) -> None:
    found = profile(tokenizer(tmp_path, "<think>{{ messages }}"), step_mark=";", think_end="|")
    assert (found.think_start, found.think_end, found.final_answer) == (None, "|", "eos")
    assert (found.probe, found.no_think, found.final) == (None, "", "")


def test_an_unknown_family_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="family is 'gpt'; it must be one of think, magistral") as caught:
        profile(tokenizer(tmp_path, "{{ messages }}"), family="gpt")
    assert "\n" not in str(caught.value)


def test_the_shipped_folders_keep_their_markers() -> None:
    policy = Path(__file__).resolve().parents[3] / "evals" / "reference" / "models" / "policy"
    fields = json.loads((policy / "branchwise.json").read_text())["profile"]
    found = profile(HfTokenizer.open(policy), **fields)
    assert (found.wait, found.think_end, found.step_mark) == ("<wait>", "</think>", ";")
    assert (found.probe, found.no_think, found.final_answer) == (None, "", "eos")
