"""Finding out what a server can do: a few requests for one token, which no budget counts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..errors import ModelLoadError, ServerFailed
from ..text.tokenizer import Tokenizer
from .dialect import Dialect
from .reading import read_tokens
from .request import echo_fields, only
from .servers import Servers
from .wire import Choice

SAMPLE = "The sum of 12 and 7*3 is 33.\n"
"""A text whose tokens tell one vocabulary from another."""
OTHER_TOKENS = (
    "its server cuts text into other tokens than the tokenizer that was found here; name the right one: "
    "remote:...?tokenizer=NAME"
)
_SAMPLE = "1+1"
_OTHERS = "1+2 3"
_EXTENSIONS = {"skip_special_tokens": False, "return_token_ids": True, "return_tokens_as_token_ids": True}


class _Guess(NamedTuple):
    ids_in: bool
    extensions: bool
    alternatives: int | None


_GUESSES = (
    _Guess(True, True, 20),
    _Guess(True, True, 5),
    _Guess(True, False, 5),
    _Guess(False, False, 5),
    _Guess(True, True, None),
    _Guess(False, False, None),
)
"""From what serves a search best to what any server takes; 20 and 5 are the limits of vLLM and OpenAI."""


async def probe(servers: Servers, url: str, served: str, tokenizer: Tokenizer) -> Dialect:
    """The first way of asking that the server takes. Raises `ModelLoadError` where it takes none, and
    `ServerTrouble`."""
    ids = tokenizer.encode(_SAMPLE)
    refusal = ServerFailed("")
    for guess in _GUESSES:
        try:
            reply = await servers.complete(url, _body(guess, served, ids))
        except ServerFailed as error:
            refusal = error
            continue
        if not reply.choices:
            raise ModelLoadError(
                f"{url}: a completion without a choice; is this the base of an OpenAI server?"
            )
        dialect = _dialect(guess, reply.choices[0])
        if guess.extensions:
            asked = _body(guess, served, ids)
            field = await _restricts(servers, url, asked, reply.choices[0], dialect, tokenizer)
            dialect = msgspec.structs.replace(dialect, restricts=field)
        if not (guess.ids_in and dialect.logprobs):
            return dialect
        for count in (0, 1):  # vLLM scores alone, SGLang only what it also writes on
            if await _echoes(servers, url, served, tokenizer, count):
                return msgspec.structs.replace(dialect, scores=True, echo_tokens=count)
        return dialect
    raise ModelLoadError(f"{refusal}; a remote model needs a server that takes POST {url}/completions")


def _body(guess: _Guess, served: str, ids: Sequence[int]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": served, "prompt": list(ids) if guess.ids_in else _SAMPLE}
    body |= {"max_tokens": 1, "temperature": 0.0}
    if guess.alternatives is not None:
        body["logprobs"] = guess.alternatives
    return body | _EXTENSIONS if guess.extensions else body


def _dialect(guess: _Guess, choice: Choice) -> Dialect:
    told = choice.logprobs
    named = told is not None and bool(told.tokens) and told.tokens[0].startswith("token_id:")
    tops = told is not None and bool(told.top_logprobs) and bool(told.top_logprobs[0])
    return Dialect(
        ids_in=guess.ids_in,
        ids_out=choice.token_ids is not None or named,
        extensions=guess.extensions,
        logprobs=told is not None and told.token_logprobs is not None,
        most_alternatives=(guess.alternatives or 0) if tops else 0,
        scores=False,
        restricts="",
    )


async def _restricts(
    servers: Servers, url: str, body: dict[str, Any], first: Choice, dialect: Dialect, tokenizer: Tokenizer
) -> str:
    """The parameter that makes the server write another token than its `first` choice, "" where none does:
    a server may well take a parameter that it does not know."""
    own = [one.token for one in read_tokens(first, tokenizer)]
    others = [token for token in tokenizer.encode(_OTHERS) if token not in own]
    if not others:
        return ""
    for field in ("allowed_token_ids", "logit_bias"):
        told = only(others[:1], {}, msgspec.structs.replace(dialect, restricts=field))
        try:
            reply = await servers.complete(url, body | told)
        except ServerFailed:
            continue
        if reply.choices and [one.token for one in read_tokens(reply.choices[0], tokenizer)] == others[:1]:
            return field
    return ""


async def _echoes(servers: Servers, url: str, served: str, tokenizer: Tokenizer, count: int) -> bool:
    """Whether the server tells the log-probabilities of a prompt, when it may write `count` tokens. Raises
    `ModelLoadError` where the text that it tells shows that its tokens are others."""
    ids = tokenizer.encode(SAMPLE)
    try:
        reply = await servers.complete(url, {"model": served, "prompt": list(ids), **echo_fields(count)})
    except ServerFailed:
        return False
    told = reply.choices[0].logprobs if reply.choices else None
    values = () if told is None or told.token_logprobs is None else told.token_logprobs
    here, there = tokenizer.decode(ids), (reply.choices[0].text or "") if reply.choices else ""
    if there and "".join(here.split()) not in "".join(there.split()):
        raise ModelLoadError(OTHER_TOKENS)
    return len(values) >= len(ids) and None not in values[1 : len(ids)]
