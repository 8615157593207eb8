"""What is sent to an OpenAI-compatible server and what comes back, as far as it is read. Fields that vLLM and
SGLang add to the standard are marked by the comments."""

import msgspec


class ChoiceLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """One entry per token. `tokens` are texts, or "token_id:N" where that was asked for (vLLM)."""

    tokens: tuple[str, ...] = ()
    token_logprobs: tuple[float | None, ...] | None = None
    top_logprobs: tuple[dict[str, float] | None, ...] | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A completion, or what it gained since the last chunk."""

    text: str | None = ""
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None
    # vLLM: the stop id or string that ended it, None for the model's own end.
    stop_reason: int | str | None = None
    # SGLang: the same, with the id of the model's own end.
    matched_stop: int | str | None = None
    # vLLM, for `return_token_ids`.
    token_ids: tuple[int, ...] | None = None


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class ServedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Positions as the server counts them."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A reply of `/completions`, or one event of its stream."""

    choices: tuple[Choice, ...] = ()
    usage: ServedUsage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `/models`."""

    id: str
    # vLLM and SGLang: the folder or Hub id that was loaded, and the context in positions.
    root: str | None = None
    max_model_len: int | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[ServedModel, ...] = ()


class Tokens(msgspec.Struct, frozen=True):
    """A reply of `/tokenize` (vLLM, SGLang)."""

    tokens: tuple[int, ...]


class _ErrorBody(msgspec.Struct, frozen=True):
    message: str | None = None


class _ErrorReply(msgspec.Struct, frozen=True):
    error: _ErrorBody | str | None = None
    message: str | None = None
    detail: str | None = None


def error_text(body: bytes) -> str:
    """What an error reply says, in one line of at most 300 characters."""
    try:
        reply = msgspec.json.decode(body, type=_ErrorReply)
        inner = reply.error.message if isinstance(reply.error, _ErrorBody) else reply.error
        said = inner or reply.message or reply.detail or body.decode(errors="replace")
    except msgspec.DecodeError:
        said = body.decode(errors="replace")
    return " ".join(said.split())[:300]
