"""Text deltas: joined they are the decoded text, and a broken character holds nothing back."""

import pytest
from branchwise.engine.text.detokenize import Detokenizer
from branchwise.engine.text.tokenizer import HfTokenizer
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import save_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers

REPLACEMENT = "\ufffd"


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    folder = tmp_path_factory.mktemp("bytes")
    save_tokenizer(folder)
    return HfTokenizer.open(folder)


@pytest.fixture(scope="module")
def byte_fallback() -> HfTokenizer:
    """A SentencePiece-like tokenizer: a space is part of the word, unknown characters are bytes."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdefghij.,"]
    model = models.BPE({text: i for i, text in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    tokenizer.decoder = decoders.Sequence(parts)
    return HfTokenizer(tokenizer, {}, None, "test")


def _deltas(tokenizer: HfTokenizer, ids: list[int], context: list[int] | None = None) -> list[str]:
    detokenizer = Detokenizer(tokenizer, context or [])
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


@pytest.mark.pins("vllm#17448", "vllm#19449", "tokenizers#1141", "dynamo#12630")
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@given(text=st.text(alphabet="ab. ,é漢😀\u200d👩🏽‍🚀\n", max_size=20))
def test_joined_deltas_are_the_text(request: pytest.FixtureRequest, kind: str, text: str) -> None:
    tokenizer: HfTokenizer = request.getfixturevalue(kind)
    ids = tokenizer.encode(text)
    deltas = _deltas(tokenizer, ids)
    assert "".join(deltas) == tokenizer.decode(ids)
    assert not any(REPLACEMENT in delta for delta in deltas)


@given(ids=st.lists(st.integers(0, 260), max_size=24))
def test_any_bytes_at_all_equal_the_full_decode(byte_level: HfTokenizer, ids: list[int]) -> None:
    assert "".join(_deltas(byte_level, ids)) == byte_level.decode(ids)


@pytest.mark.pins("vllm#48853")
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_an_invalid_sequence_does_not_stall(request: pytest.FixtureRequest, kind: str) -> None:
    tokenizer: HfTokenizer = request.getfixturevalue(kind)
    emoji = tokenizer.encode("😀")[-4:]
    broken = [emoji[0], emoji[0], emoji[0]]
    after = tokenizer.encode("abc")[-3:]
    deltas = _deltas(tokenizer, [*broken, *after])
    assert "".join(deltas).endswith("abc")
    assert deltas[-3:-1] == ["b", "c"]


@pytest.mark.pins("vllm#17448")
def test_a_prompt_that_ends_inside_a_character(byte_level: HfTokenizer) -> None:
    ids = byte_level.encode("x😀y")
    for cut in range(1, 5):
        assert "".join(_deltas(byte_level, ids[cut:], ids[:cut])) == ("😀y" if cut < 5 else "y")
    # A fresh text behind an open character: what was open becomes U+FFFD, nothing is lost.
    assert "".join(_deltas(byte_level, byte_level.encode("ab"), ids[:3])) == REPLACEMENT + "ab"


def test_context_supplies_the_space_and_is_not_repeated(byte_fallback: HfTokenizer) -> None:
    ids = byte_fallback.encode("ab cd ef")
    for cut in range(1, len(ids)):
        head, tail = byte_fallback.decode(ids[:cut]), "".join(_deltas(byte_fallback, ids[cut:], ids[:cut]))
        assert head + tail == "ab cd ef"


def test_flush_gives_an_unfinished_character_once(byte_level: HfTokenizer) -> None:
    detokenizer = Detokenizer(byte_level)
    assert detokenizer.push(byte_level.encode("é")[0]) == ""
    assert detokenizer.flush() == REPLACEMENT
    assert detokenizer.flush() == ""
    assert detokenizer.push(byte_level.encode("a")[0]) == "a"
