"""Text of a growing token sequence, in pieces that never change afterwards."""

import codecs
from collections.abc import Sequence

from .tokenizer import BytePieces, Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_LONGEST_CHARACTER = 4
_CONTEXT_TOKENS = 8


class Detokenizer:
    """Turns tokens into text deltas. The deltas, joined, are the decoded sequence.

    A character that is spread over several tokens comes with its last one. Bytes that are no UTF-8 come out
    as U+FFFD as soon as that is certain, so they do not hold back what follows. `context` are the tokens
    before: their text is not repeated, but a character that they left open is completed.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = ()) -> None:
        tail = list(context[-2 * _CONTEXT_TOKENS :])
        self._decoder: _ByteDecoder | _WindowDecoder
        if isinstance(tokenizer, BytePieces) and tokenizer.piece(0) is not None:
            self._decoder = _ByteDecoder(tokenizer, tail)
        else:
            self._decoder = _WindowDecoder(tokenizer, tail)

    def push(self, token: int) -> str:
        """The text that `token` makes certain."""
        return self._decoder.push(token)

    @property
    def open(self) -> bool:
        """Whether the last token left a character unfinished."""
        return self._decoder.open

    def flush(self) -> str:
        """What is still held back: an incomplete character, as U+FFFD."""
        return self._decoder.flush()


class _ByteDecoder:
    """For byte-level tokenizers: each token is bytes, and UTF-8 is decoded across them."""

    def __init__(self, tokenizer: BytePieces, context: Sequence[int]) -> None:
        self._pieces = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        for token in context:
            self.push(token)

    def push(self, token: int) -> str:
        return self._utf8.decode(self._pieces.piece(token) or b"")

    @property
    def open(self) -> bool:
        return bool(self._utf8.getstate()[0])

    def flush(self) -> str:
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


class _WindowDecoder:
    """For tokenizers whose text depends on the neighbours (a space before a word, byte fallback): decode a
    short window twice, without and with the new tokens, and take the difference."""

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._known = _window(tokenizer, list(context))
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        self._pending.append(token)
        before, after = (
            self._tokenizer.decode(self._known),
            self._tokenizer.decode(self._known + self._pending),
        )
        if after.endswith(_REPLACEMENT) and len(self._pending) < _LONGEST_CHARACTER:
            return ""
        return self._accept(after[len(before) :])

    @property
    def open(self) -> bool:
        return bool(self._pending)

    def flush(self) -> str:
        if not self._pending:
            return ""
        before, after = (
            self._tokenizer.decode(self._known),
            self._tokenizer.decode(self._known + self._pending),
        )
        return self._accept(after[len(before) :])

    def _accept(self, text: str) -> str:
        self._known += self._pending
        self._pending = []
        if len(self._known) > 2 * _CONTEXT_TOKENS:
            self._known = _window(self._tokenizer, self._known)
        return text


def _window(tokenizer: Tokenizer, tokens: list[int]) -> list[int]:
    """The last tokens, cut before a character: half of one would spoil all bytes that follow it."""
    size = _CONTEXT_TOKENS
    while size < len(tokens) and tokenizer.decode(tokens[-size:]).startswith(_REPLACEMENT):
        size += 1
    return tokens[-size:]
