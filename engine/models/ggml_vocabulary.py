"""The tokenizer inside a GGUF file, rebuilt as a `tokenizers` one."""

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelLoadError
from ..text.template import ChatTemplate
from ..text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = f"{_CONTRACTIONS}|{_WORDS}|\\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = f"{_CONTRACTIONS}|{_WORDS}|\\p{{N}}|{_REST}"
_SPLITS = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2}
"""How text is cut before merging, by `tokenizer.ggml.pre`; the expressions are those of the models' own
tokenizers."""

_DIGIT_WISE = ("smollm", "refact", "starcoder", "command-r")
_PLAIN = ("default", "gpt-2", "gpt2")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


class _Kind(IntEnum):
    """`tokenizer.ggml.token_type`."""

    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4


def read_tokenizer(metadata: Mapping[str, Any], path: Path) -> HfTokenizer:
    """The tokenizer of a file's metadata; `ModelLoadError` for a vocabulary of an unknown sort."""
    from tokenizers import AddedToken

    for key in ("tokenizer.ggml.model", "tokenizer.ggml.tokens"):
        if key not in metadata:
            raise ModelLoadError(
                f"{path} holds no tokenizer ({key} is missing); use a file that was converted with one"
            )
    kind = metadata["tokenizer.ggml.model"]
    tokens: Sequence[str] = metadata["tokenizer.ggml.tokens"]
    if kind == "gpt2":
        tokenizer = _byte_level(metadata, tokens, path)
    elif kind == "llama":
        tokenizer = _sentencepiece(metadata, tokens)
    else:
        raise ModelLoadError(f"{path}: tokenizer {kind!r} is not supported; supported are gpt2 and llama")
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    added = [
        AddedToken(text, special=sort == _Kind.CONTROL, normalized=False)
        for text, sort in zip(tokens, types, strict=True)
        if sort in (_Kind.CONTROL, _Kind.USER_DEFINED)
    ]
    tokenizer.add_tokens(added)
    special = {
        name: tokens[int(metadata[key])]
        for name, key in _SPECIAL_IDS.items()
        if key in metadata and int(metadata[key]) < len(tokens)
    }
    text = metadata.get("tokenizer.chat_template")
    template = ChatTemplate(text, str(path)) if isinstance(text, str) else None
    return HfTokenizer(tokenizer, special, template, str(path))


def tokenizer_documents(tokenizer: HfTokenizer) -> dict[str, Any]:
    """`tokenizer.json` and `tokenizer_config.json` that transformers loads as the same tokenizer."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **tokenizer.special_tokens,
    }
    if tokenizer.template is not None:
        config["chat_template"] = tokenizer.template.text
    return {"tokenizer.json": json.loads(tokenizer.to_json()), "tokenizer_config.json": config}


_SPECIAL_IDS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str], path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models

    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges") or ()]
    vocabulary = {text: index for index, text in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _splitter(str(metadata.get("tokenizer.ggml.pre", "default")), path)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _splitter(name: str, path: Path) -> "PreTokenizer":
    from tokenizers import Regex, pre_tokenizers

    if name in _PLAIN:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in _DIGIT_WISE:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if name in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[name]), behavior="isolated", invert=False)
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, plain])
    known = ", ".join((*_PLAIN, *_DIGIT_WISE, *_SPLITS))
    raise ModelLoadError(f"{path}: pre-tokenizer {name!r} is not supported; supported are {known}")


def _sentencepiece(metadata: Mapping[str, Any], tokens: Sequence[str]) -> "Tokenizer":
    """A SentencePiece BPE vocabulary: merges are not stored, the scores rank them."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {text: index for index, text in enumerate(tokens)}
    scores = metadata["tokenizer.ggml.scores"]
    ranked: list[tuple[float, int, str, str]] = []
    for text, index in vocabulary.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((-scores[index], len(ranked), left, right))
    merges = [(left, right) for _, _, left, right in sorted(ranked)]
    unknown = tokens[int(metadata.get("tokenizer.ggml.unknown_token_id", 0))]
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    prefixed = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    steps = [normalizers.Prepend(_SPACE)] if prefixed else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefixed else []
    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer
