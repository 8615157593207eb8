"""Steps encoded one by one have the ids of the whole text, with a tokenizer of the SentencePiece kind."""

import pytest
from branchwise.engine.text.step_format import Scorer, label_ids, step_format
from branchwise.engine.text.tokenizer import HfTokenizer, shares_ids
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

PIECES = ["▁", *"+-ки0123456789:.=?abcdefghijklmnopqrstuvwxyzSQ\n", "▁+", "▁-", "▁к", "▁ки", "▁S", "▁a"]
MERGES = [("▁", "+"), ("▁", "-"), ("▁", "к"), ("▁к", "и"), ("▁", "S"), ("▁", "a")]


def _llama_like(extra: str = "") -> HfTokenizer:
    """Blanks become ▁, and one is put before every text, as Llama 2's and Mistral's tokenizers do."""
    vocabulary = {piece: index for index, piece in enumerate([*PIECES, *extra])}
    rust = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    rust.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    rust.add_tokens([AddedToken("<s>", special=True, normalized=False)])
    return HfTokenizer(rust, {"bos_token": "<s>"}, None, "test")


def test_steps_are_encoded_as_in_the_whole_text() -> None:
    tokenizer = _llama_like()
    form = step_format(Scorer.MATH_SHEPHERD, tokenizer)
    steps = ["3 apples", "3+4=7", "so 7"]
    ids = [*form.prompt("Q a?", tokenizer.encode)]
    marks = []
    for index, step in enumerate(steps):
        ids += form.step(index, step + "\n\n", tokenizer.encode)
        marks.append(len(ids) - 1)
    whole = "<s>Q a? Step 1: 3 apples ки\nStep 2: 3+4=7 ки\nStep 3: so 7 ки"
    assert ids == tokenizer.encode(whole)
    assert [position for position, token in enumerate(ids) if token == PIECES.index("▁ки")] == marks


def test_steps_that_carry_a_number_keep_it() -> None:
    tokenizer = _llama_like()
    form = step_format(Scorer.MATH_SHEPHERD, tokenizer)
    assert form.step(1, "Step 2: a", tokenizer.encode) == form.step(1, "a", tokenizer.encode)


def test_labels_are_the_words_plus_and_minus() -> None:
    assert label_ids(Scorer.MATH_SHEPHERD, _llama_like()) == (PIECES.index("▁-"), PIECES.index("▁+"))
    assert label_ids(Scorer.QWEN_MATH, _llama_like()) == ()


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_step_still_has_a_position_to_score(text: str) -> None:
    tokenizer = _llama_like()
    for scorer in (Scorer.MATH_SHEPHERD, Scorer.SKYWORK, Scorer.CLASSIFICATION):
        assert step_format(scorer, tokenizer).step(0, text, tokenizer.encode)


def test_ids_are_shared_by_equal_vocabularies_only() -> None:
    assert shares_ids(_llama_like(), _llama_like())
    assert not shares_ids(_llama_like("é"), _llama_like("ü"))
    assert not shares_ids(_llama_like("é"), _llama_like())
