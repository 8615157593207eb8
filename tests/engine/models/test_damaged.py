"""Damaged models: whatever byte is flipped, cut off or written otherwise, the caller gets a model or one line
that says what is wrong.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from branchwise.engine.errors import BranchwiseError
from branchwise.engine.opening import load_models
from branchwise.engine.text.tokenizer import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ggml import write_gguf
from support.tiny import save_adapter, save_model

QUICK, MANY = 60, 600
KV_BYTES = 1 << 21

ODD = (
    None,
    True,
    -1,
    0,
    1,
    7,
    2**40,
    2**70,
    1e308,
    float("nan"),
    -0.5,
    "",
    "x",
    "1",
    [],
    {},
    [1],
    [None],
    [[]],
)
ODD_HERE = (
    {"a": 1},
    {"rope_type": "yarn"},
    {"rope_type": 5},
    {"rope_type": "linear", "factor": 0},
    {"rope_type": "llama3", "low_freq_factor": 0},
    {"type": "linear", "factor": "2"},
    ["full_attention"],
    ["sliding_attention", 3],
    ["LlamaForCausalLM"],
    {"profile": {"stop": ["nowhere"]}},
    "{{ 1 / 0 }}",
    "{% for",
)
ADDED = {
    "config.json": (
        "rope_scaling",
        "rope_parameters",
        "rope_theta",
        "sliding_window",
        "use_sliding_window",
        "layer_types",
        "max_window_layers",
        "id2label",
        "num_labels",
        "head_dim",
        "eos_token_id",
        "model_type",
        "quantization_config",
        "tie_word_embeddings",
        "_name_or_path",
    ),
    "generation_config.json": (
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "eos_token_id",
    ),
    "tokenizer_config.json": ("chat_template", "eos_token"),
    "adapter_config.json": ("rank_pattern", "alpha_pattern", "modules_to_save", "use_rslora"),
    "branchwise.json": ("profile", "scorer", "deterministic", "role"),
}


class Part(NamedTuple):
    """A file of a model that is to be damaged, and how that model is opened from a copy at `root`."""

    folder: Path
    file: str
    source: str
    adapter: str | None = None

    def opened(self, root: Path) -> dict[str, Any]:
        adapters = {} if self.adapter is None else {"policy": root / self.adapter}
        return {"sources": {"policy": root / self.source}, "adapters": adapters}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Part]]:
    base = tmp_path_factory.mktemp("whole")
    made: list[tuple[str, str, dict[str, Any]]] = [
        ("policy", "Llama", {}),
        ("prm", "Qwen2", {"head": "TokenClassification", "num_labels": 2}),
        ("gguf", "Llama", {}),
        ("adapted", "Llama", {}),
        ("foreign", "Gemma2", {"sliding_window": 20}),
    ]
    for name, family, options in made:
        folder = base / name
        model = save_model(folder / "model", family, num_hidden_layers=1, **options)
        if name == "gguf":
            write_gguf(folder / "model", folder / "model.gguf")
            shutil.rmtree(folder / "model")
        elif name == "adapted":
            save_adapter(folder / "adapter", model)
        else:
            notes = {"profile": {"final_answer": "eos", "stop": ["<|im_end|>"]}, "role": "a test"}
            (folder / "model" / "branchwise.json").write_text(json.dumps(notes))
    found = {"gguf": [Part(base / "gguf", "model.gguf", "model.gguf")]}
    for name in ("policy", "prm", "foreign"):
        files = sorted(path.name for path in (base / name / "model").iterdir())
        found[name] = [Part(base / name, f"model/{file}", "model") for file in files]
    files = sorted(path.name for path in (base / "adapted" / "adapter").iterdir())
    found["adapted"] = [Part(base / "adapted", f"adapter/{file}", "model", "adapter") for file in files]
    return found


def flipped(data: st.DataObject, content: bytes) -> bytes:
    changed = bytearray(content)
    ends = st.sampled_from([min(4000, len(content)), len(content)])
    for _ in range(data.draw(st.sampled_from([1, 1, 2, 8]))):
        place = data.draw(st.integers(0, data.draw(ends) - 1))
        changed[place] = data.draw(
            st.sampled_from([0, 255, 45, 57, 34, changed[place] ^ 1, changed[place] ^ 128])
        )
    return bytes(changed)


def cut(data: st.DataObject, content: bytes) -> bytes:
    return content[: data.draw(st.integers(0, len(content) - 1))]


def rewritten(data: st.DataObject, content: bytes, name: str) -> bytes:
    """JSON with one value that is odd there, one that is gone, or one that is new."""
    document = json.loads(content)
    value = data.draw(st.sampled_from(ODD) | st.sampled_from(ODD_HERE))
    if name in ADDED and data.draw(st.booleans()):
        document[data.draw(st.sampled_from(ADDED[name]))] = value
        return json.dumps(document).encode()
    path = data.draw(st.sampled_from(list(places(document))))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    if isinstance(inner, dict) and data.draw(st.integers(0, 3)) == 0:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(document).encode()


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand; of a long list, or of a vocabulary, some."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items)[:40]:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def check(data: st.DataObject, part: Part, root: Path) -> None:
    content = (part.folder / part.file).read_bytes()
    name = Path(part.file).name
    how = data.draw(st.sampled_from(["flip", "cut", *["rewrite"] * 4 * name.endswith(".json")]))
    if how == "rewrite":
        content = rewritten(data, content, name)
    else:
        content = (flipped if how == "flip" else cut)(data, content)
    shutil.copytree(part.folder, root, dirs_exist_ok=True)
    (root / part.file).write_bytes(content)
    try:
        tokenizer = load_models(**part.opened(root), kv_memory=KV_BYTES)["policy"].info.tokenizer
        tokenizer.chat([Message("user", "hi")])
        tokenizer.decode(tokenizer.encode("hi 12"))
    except BranchwiseError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        assert len(text) < 2000


KINDS = ["policy", "prm", "gguf", "adapted", "foreign"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_model_is_one_line(kind: str, parts: dict[str, list[Part]], tmp_path: Path) -> None:
    @settings(max_examples=QUICK if kind != "foreign" else QUICK // 4)
    @given(data=st.data())
    def damage(data: st.DataObject) -> None:
        check(data, data.draw(st.sampled_from(parts[kind])), tmp_path / "damaged")

    damage()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_model_is_one_line_however_it_is_damaged(
    kind: str, parts: dict[str, list[Part]], tmp_path: Path
) -> None:
    @settings(max_examples=MANY if kind != "foreign" else MANY // 10)
    @given(data=st.data())
    def damage(data: st.DataObject) -> None:
        check(data, data.draw(st.sampled_from(parts[kind])), tmp_path / "damaged")

    damage()


@pytest.mark.parametrize(
    ("file", "field", "value", "message"),
    [
        ("config.json", "num_hidden_layers", 2**40, "num_hidden_layers is 1099511627776; it must be a whole"),
        ("config.json", "rope_parameters", "x", "the rope parameters are 'x'; they must be an object"),
        ("config.json", "rope_theta", [], "a rope parameter is no number: Expected `float`, got `array`"),
        ("config.json", "eos_token_id", "x", "eos_token_id is 'x'; it must be a token id or a list of them"),
        ("generation_config.json", "eos_token_id", {}, "eos_token_id is {}; it must be a token id or a list"),
    ],
)
def test_the_line_names_the_field_and_the_value(
    file: str, field: str, value: object, message: str, parts: dict[str, list[Part]], tmp_path: Path
) -> None:
    [part] = [part for part in parts["policy"] if part.file.endswith(f"/{file}")]
    shutil.copytree(part.folder, tmp_path / "damaged")
    path = tmp_path / "damaged" / part.file
    document = json.loads(path.read_text()) | {field: value}
    if field == "rope_theta":
        del document["rope_parameters"]
    path.write_text(json.dumps(document))
    with pytest.raises(BranchwiseError) as caught:
        load_models(**part.opened(tmp_path / "damaged"), kv_memory=KV_BYTES)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
