"""Text as token ids without a vocabulary: every distinct piece of text gets an id of its own."""

import itertools
from collections.abc import Sequence

from ...engine.text.tokenizer import Message


class PieceTokenizer:
    """A recording tells how many tokens a completion had, not which: its text is cut into so many pieces of
    nearly equal length, whose ids decode to the text exactly."""

    vocab_size = 1 << 31

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._ids: dict[str, int] = {}

    def cut(self, text: str, count: int) -> tuple[int, ...]:
        """`count` ids whose pieces make up the text; some are empty where the text is shorter."""
        bounds = [len(text) * i // count for i in range(count + 1)]
        return tuple(self._id(text[a:b]) for a, b in itertools.pairwise(bounds))

    def encode(self, text: str) -> list[int]:
        return [self._id(text)] if text else []

    def decode(self, ids: Sequence[int]) -> str:
        return "".join([self._pieces[i] for i in ids])

    def chat(self, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
        return [self._id("\n\n".join(message.content for message in messages))]

    def token_id(self, text: str) -> int | None:
        return self._ids.get(text)

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]
