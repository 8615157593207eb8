"""The model of a plan: its config's shape, no weights. What it writes is drawn from hashes."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...engine.models.config import ModelConfig, parse_config, read_fields
from ...engine.protocol import ModelInfo
from ...engine.sampling.params import SamplingParams
from ...engine.text.profile import ModelProfile
from ...engine.text.tokenizer import Message
from ...engine.user_path import user_path

END = 0
"""The end id."""

ANSWERS = 1000
"""Ids from 1 on whose text is an answer, one number each. The first is the one that texts agree on."""

VOCABULARY = 4096
"""Ids in use; the head's width is the config's."""

_MIX = 0x9E3779B97F4A7C15


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """What texts look like. `answer_tokens` is the mean length of a solution, None for texts that never end
    by themselves; lengths are spread evenly by the share `spread` below and above it. `agree` is the share of
    solutions with the same answer; all others differ from each other."""

    answer_tokens: int | None = None
    spread: float = 0.5
    agree: float = 0.0


class OracleWriter:
    """Draws tokens. Whether a text ends at a position depends on the position and a hash of the sequence's
    seed, so that a fork may be longer or shorter than its siblings, as with a model."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        mean = writing.answer_tokens or 0
        self._shortest = max(1, round(mean * (1 - writing.spread)))
        self._longest = max(self._shortest, round(mean * (1 + writing.spread)))

    def token(self, seed: int, position: int, before: int, prompt: int) -> int:
        """The token at `position` behind the token `before` and a prompt of `prompt` tokens."""
        noise = mixed(seed, position)
        if self._writing.answer_tokens is None:
            return ANSWERS + 1 + noise % (VOCABULARY - ANSWERS - 1)
        if 1 <= before <= ANSWERS:
            return END
        # Of the lengths that are still possible each is as likely as the others: the answer stands one
        # token before the end.
        left = self._longest - 1 - (position - prompt)
        if position - prompt < self._shortest - 2 or noise % max(1, left) > 0:
            return ANSWERS + 1 + noise % (VOCABULARY - ANSWERS - 1)
        agrees = mixed(seed, ~position) / 2**64 < self._writing.agree
        return 1 if agrees else 2 + noise // 64 % (ANSWERS - 1)


def mixed(seed: int, position: int) -> int:
    """64 bits of a hash of both (splitmix64, Steele et al. 2014)."""
    mask = (1 << 64) - 1
    value = (seed + (position & mask) * _MIX) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


class OracleTokenizer:
    """Prompts of a fixed length whose ids depend on the text; answers are text, all else is a letter."""

    vocab_size = VOCABULARY

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens

    def encode(self, text: str) -> list[int]:
        return [ANSWERS + 1 + ord(letter) % (VOCABULARY - ANSWERS - 1) for letter in text]

    def piece(self, token: int) -> bytes:
        """UTF-8 of the token's text."""
        if 1 <= token <= ANSWERS:
            return b"\\boxed{%d}" % token
        return b"" if token == END else b"x"

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.piece, ids)).decode()

    def chat(self, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
        """A prompt of the plan's length, another one for another text."""
        text = msgspec.json.encode([message.content for message in messages])
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        room = VOCABULARY - ANSWERS - 1
        return [ANSWERS + 1 + mixed(seed, place) % room for place in range(self._prompt_tokens)]

    def token_id(self, text: str) -> int | None:
        return END if text == "" else None


def read_config(path: str, option: str) -> ModelConfig:
    """The model in a `config.json`, or in a folder with one. `UsageError` (`ModelLoadError` is one) in one
    line for a file that describes none."""
    file = user_path(path)
    if file.is_dir():
        return parse_config(read_fields(file), path)
    return parse_config(_fields(file, option, path), path)


def _fields(file: Path, option: str, path: str) -> dict[str, object]:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} {path}: not JSON ({error}); give the config.json of a model") from None
    if not isinstance(fields, dict):
        raise UsageError(f"{option} {path}: holds no object; give the config.json of a model")
    return fields


def oracle_info(
    role: str, config: ModelConfig, tokenizer: OracleTokenizer, max_model_len: int | None
) -> ModelInfo:
    """The facts of the oracle that plays `config`."""
    return ModelInfo(
        name=role,
        source=f"plan of {config.architecture}",
        head="reward" if config.head.labels else "lm",
        vocab_size=VOCABULARY,
        max_model_len=min(max_model_len or config.max_position, config.max_position),
        cost=config.cost,
        tokenizer=tokenizer,
        profile=ModelProfile(final_answer="eos", stop_ids=frozenset({END})),
        sampling=SamplingParams(),
        weights_digest=f"oracle-{role}",
    )
