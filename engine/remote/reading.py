"""Tokens out of what a server streams."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..sampling.detail import Alternatives, TokenStats
from ..text.tokenizer import HfTokenizer, Tokenizer
from .wire import Choice, ChoiceLogprobs

_ID = "token_id:"


class Arrived(NamedTuple):
    """A token that came: its raw log-probability, None where it was not told, and the most likely ones."""

    token: int
    logprob: float | None = None
    alternatives: Alternatives | None = None


def read_tokens(choice: Choice, tokenizer: Tokenizer) -> list[Arrived]:
    """The tokens of a chunk, by their ids where the server gives them, else as the tokenizer cuts their
    text."""
    told = choice.logprobs or ChoiceLogprobs()
    ids = choice.token_ids
    if ids is None and told.tokens and all(text.startswith(_ID) for text in told.tokens):
        ids = tuple(_id(text, tokenizer) for text in told.tokens)
    if ids is None:
        return _from_text(choice.text or "", told, tokenizer)
    if told.token_logprobs is None or len(told.token_logprobs) != len(ids):
        return [Arrived(token) for token in ids]
    tops = told.top_logprobs
    if tops is None or len(tops) != len(ids):
        tops = (None,) * len(ids)
    return [
        Arrived(token, logprob, _alternatives(top, tokenizer))
        for token, logprob, top in zip(ids, told.token_logprobs, tops, strict=True)
    ]


def confidence_of(alternatives: Alternatives, k: int) -> TokenStats:
    """What can be known of a token's distribution from its k most likely tokens: the confidence alone. The
    rest needs the whole row, and is not a number."""
    logprobs = alternatives.logprobs[:k]
    confidence = 0.0 - math.fsum(logprobs) / len(logprobs) if logprobs else math.nan
    return TokenStats(entropy=math.nan, self_certainty=math.nan, confidence=confidence)


def end_id(told: int | str | None, tokenizer: Tokenizer, stop_ids: frozenset[int]) -> int | None:
    """The token that stands for an end that did not come as a token: the one that the server tells, else the
    tokenizer's own."""
    if isinstance(told, int) and told in stop_ids:
        return told
    own = tokenizer.eos_id if isinstance(tokenizer, HfTokenizer) else None
    if own in stop_ids:
        return own
    return min(stop_ids, default=None)


def _from_text(text: str, told: ChoiceLogprobs, tokenizer: Tokenizer) -> list[Arrived]:
    """Each piece in ids of its own where they join to the text, so that log-probabilities stay with their
    tokens: the first id of a piece has them, the others 0, which leaves sums right."""
    logprobs: Sequence[float | None] = told.token_logprobs or ()
    pieces: Sequence[str] = told.tokens
    # SGLang tells the end token among the log-probabilities, and leaves it out of the text.
    joined = text in ("".join(pieces), "".join(pieces[:-1]))
    if not joined or len(pieces) != len(logprobs):
        return [Arrived(token) for token in tokenizer.encode(text)]
    arrived = []
    for piece, logprob in zip(pieces, logprobs, strict=True):
        for place, token in enumerate(tokenizer.encode(piece)):
            arrived.append(Arrived(token, 0.0 if place and logprob is not None else logprob))
    return arrived


def _alternatives(top: dict[str, float] | None, tokenizer: Tokenizer) -> Alternatives | None:
    if not top:
        return None
    falling = sorted(top.items(), key=lambda item: -item[1])
    ids = tuple(_id(text, tokenizer) for text, _ in falling)
    return Alternatives(ids, tuple(logprob for _, logprob in falling))


def _id(text: str, tokenizer: Tokenizer) -> int:
    """The id that a text names, -1 where it names none."""
    if text.startswith(_ID):
        digits = text.removeprefix(_ID)
        return int(digits) if digits.isdecimal() else -1
    found = tokenizer.token_id(text)
    return -1 if found is None else found
