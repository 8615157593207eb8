"""Tokenizers and chat templates of model folders, equal to transformers' own."""

import json
from pathlib import Path
from typing import Any

import pytest
from branchwise.engine.errors import ModelLoadError, UsageError
from branchwise.engine.text.tokenizer import HfTokenizer, Message
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import SPECIALS, save_tokenizer

TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "names": "{{ bos_token }}{{ eos_token }}{{ messages | tojson }}{{ tools is none }}"
    "{{ strftime_now('%Y') | length }}",
    "loops": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{% if loop.index > 3 %}{% break %}{% endif %}  {% generation %}[{{ m.content }}]{% endgeneration %}"
    "\n{% endfor %}",
    "spaces": "  {%- set ns = namespace(last='') -%}\n  {% for m in messages %}"
    "\n    {% set ns.last = m.content %}\n"
    "  {% endfor %}\n{{ ns.last }} ",
    "thinking": "{{ messages[-1].content }}{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>"
    "{% endif %}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> HfTokenizer:
    return HfTokenizer.open(folder)


def _with_template(folder: Path, target: Path, **fields: Any) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).write_text((folder / name).read_text())
    config = json.loads((target / "tokenizer_config.json").read_text())
    (target / "tokenizer_config.json").write_text(json.dumps({**config, **fields}))
    return target


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("think", [None, True, False])
def test_templates_render_as_transformers_renders_them(
    folder: Path, tmp_path: Path, name: str, think: bool | None
) -> None:
    import transformers

    path = _with_template(folder, tmp_path, chat_template=TEMPLATES[name], bos_token="<|im_start|>")
    (path / "chat_template.jinja").unlink(missing_ok=True)
    turns = [
        Message("system", "Be <brief>."),
        Message("user", " Grüße\n"),
        Message("assistant", "x"),
        Message("user", "y"),
    ]
    options = {} if think is None else {"enable_thinking": think}
    expected = transformers.AutoTokenizer.from_pretrained(path).apply_chat_template(
        [{"role": turn.role, "content": turn.content} for turn in turns],
        add_generation_prompt=True,
        return_dict=False,
        **options,
    )
    assert HfTokenizer.open(path).chat(turns, think=think) == expected


def test_a_template_file_wins_over_the_configuration(folder: Path, tmp_path: Path) -> None:
    path = _with_template(folder, tmp_path, chat_template="old")
    (path / "chat_template.jinja").write_text("new")
    assert HfTokenizer.open(path).chat([Message("user", "x")]) == HfTokenizer.open(path).encode("new")


def test_the_default_of_named_templates_is_taken(folder: Path, tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    tokenizer = HfTokenizer.open(_with_template(folder, tmp_path, chat_template=named))
    assert tokenizer.chat([Message("user", "x")]) == tokenizer.encode("plain")


def test_a_template_that_refuses_says_why(folder: Path, tmp_path: Path) -> None:
    path = _with_template(folder, tmp_path, chat_template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(UsageError, match="roles must alternate"):
        HfTokenizer.open(path).chat([Message("user", "x")])


def test_a_template_cannot_reach_out_of_the_sandbox(folder: Path, tmp_path: Path) -> None:
    path = _with_template(folder, tmp_path, chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(UsageError, match="refused"):
        HfTokenizer.open(path).chat([Message("user", "x")])


def test_a_template_that_does_not_compile_is_named(folder: Path, tmp_path: Path) -> None:
    path = _with_template(folder, tmp_path, chat_template="{% for %}")
    with pytest.raises(ModelLoadError, match="does not compile"):
        HfTokenizer.open(path).chat([Message("user", "x")])


def test_without_a_template_the_last_message_is_the_prompt(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    tokenizer = HfTokenizer.open(tmp_path)
    assert tokenizer.chat([Message("user", "a"), Message("user", "b")]) == tokenizer.encode("b")
    with pytest.raises(UsageError, match="at least one message"):
        tokenizer.chat([])


@given(text=st.text(max_size=30))
def test_text_survives_encoding(tokenizer: HfTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.piece(token) or b"" for token in ids) == text.encode()


def test_special_tokens_are_recognised_and_kept_as_text(tokenizer: HfTokenizer) -> None:
    ids = tokenizer.encode("a<think>b")
    assert ids[1] == tokenizer.token_id("<think>")
    assert tokenizer.decode(ids) == "a<think>b"
    assert [tokenizer.token_id(text) for text in SPECIALS] == list(range(256, 261))
    assert tokenizer.token_id("ab") is None
    assert tokenizer.token_id(" ") == tokenizer.encode(" ")[0]
    assert tokenizer.eos_id == 256
    assert tokenizer.vocab_size == 261


def test_a_folder_without_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"has no tokenizer\.json"):
        HfTokenizer.open(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is not a tokenizer"):
        HfTokenizer.open(tmp_path)
