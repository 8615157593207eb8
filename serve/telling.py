"""Log-probabilities of an answer's tokens, as both endpoints tell them."""

from ..engine.protocol import ModelInfo
from ..engine.sampling.detail import Alternatives
from ..engine.text.detokenize import Detokenizer
from ..reasoning.written import Written
from .schema import TextLogprobs, TokenLogprob, TopLogprob

IMPOSSIBLE = -9999.0


def token_logprobs(written: Written, info: ModelInfo, length: int) -> list[TokenLogprob]:
    """The tokens of the answer phase that make its first `length` characters, end ids apart; their texts,
    joined, are those characters or more."""
    start = written.conclusion_start
    detokenizer = Detokenizer(info.tokenizer, written.tokens[:start])
    told: list[TokenLogprob] = []
    characters = 0
    known = zip(written.tokens, written.logprobs, written.alternatives, strict=True)
    for token, logprob, others in list(known)[start:]:
        if token in info.profile.stop_ids:
            continue
        if characters >= length:
            break
        text = detokenizer.push(token)
        characters += len(text)
        told.append(_told(text, logprob, _leading(others, info)))
    if told and characters < length and (rest := detokenizer.flush()):
        last = told[-1]
        told[-1] = _told(last.token + rest, last.logprob, last.top_logprobs)
    return told


def text_logprobs(tokens: list[TokenLogprob]) -> TextLogprobs:
    """The same in the lists of the older endpoint, which tells of each token itself too."""
    offsets: list[int] = []
    characters = 0
    for token in tokens:
        offsets.append(characters)
        characters += len(token.token)
    return TextLogprobs(
        tokens=[token.token for token in tokens],
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=[{one.token: one.logprob for one in (*token.top_logprobs, token)} for token in tokens],
        text_offset=offsets,
    )


def _leading(others: Alternatives | None, info: ModelInfo) -> list[TopLogprob]:
    """The likeliest tokens, each with its own text."""
    if others is None:
        return []
    texts = [info.tokenizer.decode([token]) for token in others.ids]
    pairs = zip(texts, others.logprobs, strict=True)
    return [
        TopLogprob(token=text, logprob=_written(logprob), bytes=list(text.encode()))
        for text, logprob in pairs
    ]


def _written(logprob: float) -> float:
    """JSON has no infinities: the API writes what is impossible as a very small number."""
    return max(logprob, IMPOSSIBLE)


def _told(text: str, logprob: float | None, leading: list[TopLogprob]) -> TokenLogprob:
    return TokenLogprob(
        token=text, logprob=_written(logprob or 0.0), bytes=list(text.encode()), top_logprobs=leading
    )
