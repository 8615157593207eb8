"""Log-probabilities of an answer's tokens, as both endpoints tell them."""

from collections.abc import Sequence

from ..engine.protocol import ModelInfo
from ..engine.sampling.detail import Alternatives
from ..engine.text.detokenize import Detokenizer
from ..reasoning.solution import Solution
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


def completion_logprobs(solution: Solution, info: ModelInfo, length: int) -> TextLogprobs:
    """The tokens of a completion's first `length` characters. Where its prompt was scored, each token of
    both, those without text and the end's with them: who scores prompts counts what was written."""
    written = solution.written
    if solution.prompt is None:
        return text_logprobs(token_logprobs(written, info, length))
    start = written.conclusion_start
    return text_logprobs([*_each(solution.prompt, info), *_each(written, info, start)], echoed=True)


def _each(written: Written, info: ModelInfo, start: int = 0) -> list[TokenLogprob]:
    """All tokens from `start` on; their texts, joined, are the whole text."""
    detokenizer = Detokenizer(info.tokenizer, written.tokens[:start])
    known = zip(written.tokens, written.logprobs, written.alternatives, strict=True)
    told = [
        _told(detokenizer.push(token), logprob, _leading(others, info))
        for token, logprob, others in list(known)[start:]
    ]
    if told and (rest := detokenizer.flush()):
        last = told[-1]
        told[-1] = _told(last.token + rest, last.logprob, last.top_logprobs)
    return told


def text_logprobs(tokens: list[TokenLogprob], *, echoed: bool = False) -> TextLogprobs:
    """The same in the lists of the older endpoint, which tells of each token itself too. The first token of
    an `echoed` prompt has no log-probability."""
    found = _lists(tokens)
    if echoed:
        found.token_logprobs[0] = found.top_logprobs[0] = None
    return found


def _lists(tokens: Sequence[TokenLogprob]) -> TextLogprobs:
    offsets: list[int] = []
    characters = 0
    for token in tokens:
        offsets.append(characters)
        characters += len(token.token)
    return TextLogprobs(
        tokens=[token.token for token in tokens],
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=[_by_text(token) for token in tokens],
        text_offset=offsets,
    )


def _by_text(token: TokenLogprob) -> dict[str, float] | None:
    """The likeliest tokens and the one that stands there; the likeliest of those that have one text."""
    found: dict[str, float] = {}
    for one in (*token.top_logprobs, token):
        found[one.token] = max(one.logprob, found.get(one.token, IMPOSSIBLE))
    return found


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
