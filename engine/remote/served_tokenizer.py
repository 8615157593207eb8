"""A tokenizer that the server has and this machine has not, through vLLM's `/tokenize` and `/detokenize`."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import httpx2
import msgspec

from ..errors import ModelLoadError, ServerFailed, UsageError
from ..text.template import ChatTemplate
from ..text.tokenizer import Message
from .wire import Tokens, error_text

UNTOLD_VOCABULARY = 1 << 31
"""The size that is given out where a server does not tell it: larger than any."""
_TIMEOUT_S = 30.0
_TRIES = 3
_TEXTS = 65536
"""Texts and token sequences that are remembered."""


class _Text(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM calls it prompt, SGLang text."""

    prompt: str | None = None
    text: str | None = None


class ServedTokenizer:
    """Implements `Tokenizer`. Each text that was not seen before is a request, which the event loop waits
    for: right where nothing else is to be had, and slower than a folder's tokenizer.

    Raises `ServerFailed`, from all of its methods.
    """

    vocab_size = UNTOLD_VOCABULARY
    eos_id: int | None = None

    def __init__(self, url: str, served: str, headers: dict[str, str]) -> None:
        """`url` is the base of the completions; the tokenizer's is the one above `/v1`."""
        self._base = url.removesuffix("/v1")
        self._served = served
        transport = httpx2.HTTPTransport(retries=_TRIES)
        headers = {"content-type": "application/json"} | headers
        self._http = httpx2.Client(transport=transport, headers=headers, timeout=_TIMEOUT_S)
        self._encoded = lru_cache(maxsize=_TEXTS)(self._encode)
        self._decoded = lru_cache(maxsize=_TEXTS)(self._decode)

    @classmethod
    def open(cls, url: str, served: str, headers: dict[str, str]) -> "ServedTokenizer":
        """Raises `ModelLoadError` where the server has no such end points."""
        tokenizer = cls(url, served, headers)
        try:
            tokenizer.decode(tokenizer.encode("1+1"))
        except ServerFailed as error:
            raise ModelLoadError(str(error)) from None
        return tokenizer

    @property
    def template(self) -> ChatTemplate:
        """What the chat template shows of itself in a prompt: not its code, but the markers of turns and of
        thinking, which is what the profile looks for."""
        return self._shown

    @cached_property
    def _shown(self) -> ChatTemplate:
        prompts = [self.chat([Message("user", "1+1")], think=think) for think in (None, False, True)]
        return ChatTemplate("".join(map(self.decode, prompts)), self._base)

    def encode(self, text: str) -> list[int]:
        return list(self._encoded(text)) if text else []

    def decode(self, ids: Sequence[int]) -> str:
        return self._decoded(tuple(ids)) if ids else ""

    def chat(self, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
        if not messages:
            raise UsageError("a chat needs at least one message")
        turns = [{"role": message.role, "content": message.content} for message in messages]
        body: dict[str, Any] = {"messages": turns, "add_generation_prompt": True}
        if think is not None:
            body["chat_template_kwargs"] = {"enable_thinking": think}
        return list(self._ask("tokenize", body, Tokens).tokens)

    def token_id(self, text: str) -> int | None:
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 and self.decode(ids) == text else None

    def _encode(self, text: str) -> tuple[int, ...]:
        return self._ask("tokenize", {"prompt": text, "add_special_tokens": False}, Tokens).tokens

    def _decode(self, ids: tuple[int, ...]) -> str:
        reply = self._ask("detokenize", {"tokens": ids, "skip_special_tokens": False}, _Text)
        return reply.prompt if reply.prompt is not None else reply.text or ""

    def _ask(self, path: str, body: dict[str, Any], kind: type) -> Any:
        url = f"{self._base}/{path}"
        content = msgspec.json.encode({"model": self._served, **body})
        try:
            response = self._http.post(url, content=content)
            if response.status_code >= 400:
                raise ServerFailed(f"{url}: {response.status_code} {error_text(response.content)}")
            return msgspec.json.decode(response.content, type=kind)
        except httpx2.RequestError as error:
            raise ServerFailed(f"{url}: {str(error) or type(error).__name__}") from error
        except msgspec.DecodeError as error:
            raise ServerFailed(f"{url}: the reply cannot be read ({error})") from None
