"""Token ids at the edge: the tokenizer of a model folder and its chat template."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from ..errors import ModelLoadError, UsageError
from .template import ChatTemplate

if TYPE_CHECKING:
    import tokenizers


class ToolUse(msgspec.Struct, frozen=True):
    """A call of a tool in an assistant's turn."""

    name: str
    arguments: dict[str, Any]


class Message(msgspec.Struct, frozen=True):
    """One chat turn. An assistant's may end with `calls`: the next turns, of role "tool", are their
    results."""

    role: str
    content: str
    calls: tuple[ToolUse, ...] = ()


class Tokenizer(Protocol):
    """Text to ids and back. `decode` keeps special tokens as their text."""

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


@runtime_checkable
class BytePieces(Protocol):
    """A tokenizer that may know the raw bytes of its tokens."""

    def piece(self, token: int) -> bytes | None:
        """UTF-8 bytes (perhaps part of a character) that `token` stands for wherever it stands; None for all
        tokens of a tokenizer whose text depends on the neighbours."""
        ...


class HfTokenizer:
    """A `tokenizer.json` with the chat template and special tokens of its folder, without importing
    transformers."""

    def __init__(
        self,
        tokenizer: "tokenizers.Tokenizer",
        special_tokens: Mapping[str, str],
        template: ChatTemplate | None,
        source: str,
    ) -> None:
        """`special_tokens` maps names such as "eos_token" to text; `source` names the tokenizer in errors."""
        self._tokenizer = tokenizer
        self._special = dict(special_tokens)
        self._source = source
        self._vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
        self._byte_level = _is_byte_level(json.loads(tokenizer.to_str()).get("decoder"))
        self.template = template

    @classmethod
    def open(cls, folder: Path) -> "HfTokenizer":
        """The tokenizer of a model folder; `ModelLoadError` if it has none or it is damaged."""
        from tokenizers import Tokenizer as Rust

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelLoadError(
                f"{folder} has no tokenizer.json; put the model's tokenizer beside its weights"
            )
        try:
            tokenizer = Rust.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise ModelLoadError(f"{path} is not a tokenizer ({' '.join(str(error).split())})") from None
        config = _fields(folder / "tokenizer_config.json")
        special = {
            name: text
            for fields in (_fields(folder / "special_tokens_map.json"), config)
            for name, value in fields.items()
            if name.endswith("_token") and (text := _token_text(value)) is not None
        }
        return cls(tokenizer, special, _template(folder, config), str(folder))

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self._vocab_size

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Text of the named special tokens: bos_token, eos_token and so on."""
        return self._special

    @property
    def eos_id(self) -> int | None:
        """The id of the tokenizer's own end token."""
        text = self._special.get("eos_token")
        return None if text is None else self._tokenizer.token_to_id(text)

    @cached_property
    def vocabulary_digest(self) -> str:
        """Fingerprint of which id every token's spelling has."""
        spelled = sorted(self._tokenizer.get_vocab(with_added_tokens=True).items())
        return hashlib.blake2b(json.dumps(spelled).encode(), digest_size=16).hexdigest()

    def to_json(self) -> str:
        """The content of its `tokenizer.json`."""
        return self._tokenizer.to_str()

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_document(self, text: str) -> list[int]:
        """Ids of a text that stands alone: with the tokens that the tokenizer's own rules put around it, such
        as a start token."""
        return self._tokenizer.encode(text, add_special_tokens=True).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        think: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[int]:
        """As transformers' `apply_chat_template(..., add_generation_prompt=True)`; `think` becomes
        `enable_thinking`, `tools` are objects in OpenAI's shape.

        Without a chat template the last message alone is the prompt, after the start token if there is one.
        """
        if not messages:
            raise UsageError("a chat needs at least one message")
        if self.template is None:
            return self.encode(self._special.get("bos_token", "") + messages[-1].content)
        return self.encode(self.render(messages, think=think, tools=tools))

    def render(
        self,
        messages: Sequence[Message],
        *,
        think: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The text of `chat`; `UsageError` for a tokenizer without a chat template."""
        if self.template is None:
            raise UsageError(f"{self._source} has no chat template")
        turns = [_turn(message) for message in messages]
        options = {} if think is None else {"enable_thinking": think}
        return self.template.render(turns, {**self._special, **options}, tools)

    def token_id(self, text: str) -> int | None:
        found = self._tokenizer.token_to_id(text)
        if found is not None:
            return found
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 and self.decode(ids) == text else None

    def piece(self, token: int) -> bytes | None:
        if not self._byte_level:
            return None
        text = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        try:
            return bytes([_BYTES[character] for character in text])
        except KeyError:
            return text.encode()


def _turn(message: Message) -> dict[str, Any]:
    """A turn as templates read it."""
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        functions = [{"name": call.name, "arguments": call.arguments} for call in message.calls]
        turn["tool_calls"] = [{"type": "function", "function": function} for function in functions]
    return turn


def shares_ids(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether ids of one tokenizer mean the same to the other."""
    if one is other or one.vocab_size != other.vocab_size:
        return one is other
    if isinstance(one, HfTokenizer) and isinstance(other, HfTokenizer):
        return one.vocabulary_digest == other.vocabulary_digest
    return type(one) is type(other)


def _is_byte_level(decoder: Mapping[str, Any] | None) -> bool:
    return decoder is not None and decoder.get("type") == "ByteLevel"


def _byte_table() -> dict[str, int]:
    """The printable stand-ins of GPT-2's byte-level encoding, back to bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


_BYTES = _byte_table()


def _fields(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelLoadError(f"{path} is not JSON ({error})") from None
    return fields if isinstance(fields, dict) else {}


def _token_text(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _template(folder: Path, config: Mapping[str, Any]) -> ChatTemplate | None:
    """The chat template, from its own file or the configuration; of several named ones, the default."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return ChatTemplate(path.read_text(encoding="utf-8"), str(path))
        except UnicodeDecodeError as error:
            raise ModelLoadError(f"{path} is not UTF-8 text ({error}); copy the file again") from None
    text = config.get("chat_template") or _fields(folder / "chat_template.json").get("chat_template")
    if isinstance(text, list):
        named = {entry.get("name"): entry.get("template") for entry in text if isinstance(entry, dict)}
        text = named.get("default")
    return ChatTemplate(text, str(folder / "tokenizer_config.json")) if isinstance(text, str) else None
