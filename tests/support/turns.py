"""A chat model on the oracle: ids as words, and turns that stand in the prompt one behind the other."""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from branchwise.engine.protocol import ModelInfo
from branchwise.engine.text.profile import ModelProfile

from .oracle import CountingTokenizer, oracle_info

ROLES = {"system": 46, "user": 47, "assistant": 48}


class TurnTokenizer(CountingTokenizer):
    """A word that is a number is that id, any other hashes to one; each turn begins with its role's id, and
    the prompt ends with the assistant's."""

    def encode(self, text: str) -> list[int]:
        return [int(word) if word.isdigit() else 3 + zlib.crc32(word.encode()) % 40 for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f" {token}" for token in ids)

    def chat(self, messages: Any, *, think: bool | None = None) -> list[int]:
        turns = [[ROLES[message.role], *self.encode(message.content)] for message in messages]
        return [*(token for turn in turns for token in turn), ROLES["assistant"]]


def turn_info(name: str = "policy", *, max_model_len: int = 4096) -> ModelInfo:
    """Its model: no thinking, no marks, ends with id 0."""
    return msgspec.structs.replace(
        oracle_info(name, max_model_len=max_model_len),
        tokenizer=TurnTokenizer(),
        profile=ModelProfile(final_answer="eos", stop_ids=frozenset({0})),
    )
