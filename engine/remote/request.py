"""The bodies of requests to `/completions`."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import CapabilityError
from ..protocol import ExtendParams, ModelInfo
from ..sampling.params import SamplingParams
from ..text.profile import ModelProfile
from ..text.stop import StopRule, Until, mark_id
from ..text.tokenizer import Tokenizer
from .constrained import FREE, Narrowed
from .dialect import Dialect
from .sequence import RemoteSequence

_LEAST_BIAS, _MOST_BIAS = -100.0, 100.0


def salt_of(namespace: str) -> str:
    """What keeps a namespace's prefixes apart in the server's cache (vLLM's `cache_salt`), "" for none. A
    digest, since the server may log it."""
    return hashlib.blake2b(namespace.encode(), digest_size=16).hexdigest() if namespace else ""


def request_seed(seed: int, position: int) -> int:
    """31 bits for the token at `position` and those behind it, from the branch's seed."""
    text = f"{seed}\x00{position}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") >> 1


def check_sampling(sampling: SamplingParams, dialect: Dialect) -> None:
    """Refuse what this server cannot do. Raises `CapabilityError` in one line."""
    if sampling.presence_penalty or sampling.frequency_penalty:
        # Servers count the tokens of one request, and a branch is written by many.
        raise CapabilityError("a remote model cannot apply presence or frequency penalties to a branch")
    if sampling.processed_logprobs:
        raise CapabilityError("a remote server does not tell log-probabilities of the processed distribution")
    wanted = max(sampling.stats_top_k, sampling.top_logprobs)
    if wanted > dialect.most_alternatives:
        raise CapabilityError(
            f"log-probabilities of {wanted} alternatives are asked for; this server tells "
            f"{dialect.most_alternatives}: ask for as many"
        )
    if sampling.allowed_tokens is not None and not dialect.restricts:
        raise CapabilityError(
            "allowed_tokens is asked for; this server takes neither allowed_token_ids nor logit_bias"
        )
    if not dialect.extensions and _needs_extensions(sampling):
        raise CapabilityError(
            "this server takes only temperature and top_p: it has no top_k, min_p, repetition_penalty or "
            "min_tokens"
        )


def _needs_extensions(sampling: SamplingParams) -> bool:
    plain = SamplingParams()
    fields = ("top_k", "min_p", "repetition_penalty", "min_tokens")
    return any(getattr(sampling, field) != getattr(plain, field) for field in fields)


def prompt_body(served: str, sequence: RemoteSequence, info: ModelInfo, dialect: Dialect) -> dict[str, Any]:
    """What all requests on a sequence have in common."""
    prompt = sequence.tokens if dialect.ids_in else info.tokenizer.decode(sequence.tokens)
    body: dict[str, Any] = {"model": served, "prompt": prompt}
    if sequence.salt and dialect.extensions:
        body["cache_salt"] = sequence.salt
    if not dialect.ids_in and dialect.extensions:
        body["add_special_tokens"] = False
    return body


def score_body(served: str, sequence: RemoteSequence, info: ModelInfo, dialect: Dialect) -> dict[str, Any]:
    """Asks for the log-probability of each token of the prompt."""
    return prompt_body(served, sequence, info, dialect) | echo_fields(dialect.echo_tokens)


def echo_fields(tokens: int) -> dict[str, Any]:
    """What makes a server tell the log-probabilities of a prompt, and write `tokens` more."""
    return {"echo": True, "max_tokens": tokens, "logprobs": 1, "temperature": 0.0}


def extend_body(
    served: str,
    sequence: RemoteSequence,
    params: ExtendParams,
    max_tokens: int,
    info: ModelInfo,
    dialect: Dialect,
    narrowed: Narrowed = FREE,
) -> dict[str, Any]:
    """Asks for `max_tokens` tokens, as a stream that ends with the server's usage."""
    sampling = params.sampling
    body = prompt_body(served, sequence, info, dialect)
    body |= {
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if sampling.temperature > 0:
        body["seed"] = request_seed(sequence.seed, len(sequence.tokens))
    if dialect.logprobs:
        body["logprobs"] = max(sampling.stats_top_k, sampling.top_logprobs)
    if sampling.logit_bias:
        bias = {str(token): _clamped(value) for token, value in sampling.logit_bias.items()}
        body["logit_bias"] = bias
    among = sampling.allowed_tokens if narrowed.among is None else narrowed.among
    if among is not None:
        body |= only(among, sampling.logit_bias, dialect)
    if narrowed.schema is not None:
        body["response_format"] = schema_format(narrowed.schema)
    if dialect.extensions:
        body |= _extensions(sequence, params, max_tokens, info, dialect)
    return body


def _extensions(
    sequence: RemoteSequence, params: ExtendParams, max_tokens: int, info: ModelInfo, dialect: Dialect
) -> dict[str, Any]:
    sampling = params.sampling
    body: dict[str, Any] = {
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    plain = SamplingParams()
    for field in ("top_k", "min_p", "repetition_penalty"):
        if (value := getattr(sampling, field)) != getattr(plain, field):
            body[field] = value
    least = sampling.min_tokens - (len(sequence.tokens) - sequence.prompt)
    if least > 0:
        body["min_tokens"] = min(least, max_tokens)
    if dialect.ids_out:
        body |= _stops(params.stop, info.profile, info.tokenizer)
    return body


def _stops(rule: StopRule, profile: ModelProfile, tokenizer: Tokenizer) -> dict[str, Any]:
    """Where the server may stop by itself, so that it writes nothing past the end. What ends the extension
    is still found here: a server that stops too early is asked again."""
    ids, strings = set(rule.eos_ids), set(rule.strings)
    ends: list[str] = []
    if rule.until is Until.STEP and rule.tokens_per_step is None:
        ends.append(rule.mark or profile.step_mark or "\n\n")
    if rule.until in (Until.STEP, Until.THINK) and profile.think_end is not None:
        ends.append(profile.think_end)
    for text in ends:
        token = mark_id(tokenizer, text) if text != profile.think_end else tokenizer.token_id(text)
        if token is None:
            strings.add(text)
        else:
            ids.add(token)
    stops: dict[str, Any] = {"stop_token_ids": sorted(ids)}
    if strings:
        stops |= {"stop": sorted(strings), "include_stop_str_in_output": True}
    return stops


def masks_logprobs(sampling: SamplingParams, narrowed: Narrowed, dialect: Dialect) -> bool:
    """Whether the log-probabilities that come back are those of the masked distribution, which nobody asked
    for: servers tell them so behind a grammar, and SGLang behind a bias."""
    among = sampling.allowed_tokens if narrowed.among is None else narrowed.among
    return narrowed.schema is not None or (among is not None and dialect.restricts == "logit_bias")


def only(among: Sequence[int], bias: Mapping[int, float], dialect: Dialect) -> dict[str, Any]:
    """What makes a server write no token but these. A bias lifts them above all others by as much as servers
    take, and keeps the differences between them."""
    if dialect.restricts == "allowed_token_ids":
        return {"allowed_token_ids": list(among)}
    own = {token: _clamped(bias.get(token, 0.0)) for token in among}
    highest = max(own.values(), default=0.0)
    return {"logit_bias": {str(token): _clamped(_MOST_BIAS + own[token] - highest) for token in among}}


def schema_format(schema: str) -> dict[str, Any]:
    """`response_format` of OpenAI, which vLLM and SGLang take for completions too."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": msgspec.json.decode(schema)}}


def _clamped(value: float) -> float:
    """JSON has no infinity; servers take biases of this range."""
    return min(_MOST_BIAS, max(_LEAST_BIAS, value))
