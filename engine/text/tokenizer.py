"""Token ids at the edge: the tokenizer of a model folder and its chat template."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One chat turn."""

    role: str
    content: str


class Tokenizer(Protocol):
    """Text to ids and back. `decode` keeps special tokens as their text; `pieces` gives raw bytes per id."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, special tokens in it recognised, none added."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def chat(self, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
        """Ids of the prompt that the chat template makes of `messages`, ready for the assistant's turn."""
        ...

    def token_id(self, text: str) -> int | None:
        """The id whose text is exactly `text`, or None."""
        ...
