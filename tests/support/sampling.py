"""Sampling from the definitions, in plain Python: what a request does to a row of logits, and what is told
about a token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

from branchwise.engine.sampling.detail import Alternatives, TokenDetail, TokenStats
from branchwise.engine.sampling.params import SamplingParams


def target_logits(
    logits: Sequence[float],
    params: SamplingParams,
    tokens: Sequence[int],
    prompt_length: int,
    end_ids: Collection[int] = (),
) -> list[float]:
    """The row that the token behind `tokens` is drawn from: bias, allowed tokens, penalties, end ids."""
    target = list(logits)
    for token, bias in params.logit_bias.items():
        target[token] += bias
    if params.allowed_tokens is not None:
        target = [x if token in params.allowed_tokens else -math.inf for token, x in enumerate(target)]
    for token in set(tokens):
        penalty = params.repetition_penalty
        target[token] = target[token] / penalty if target[token] > 0 else target[token] * penalty
    for token, times in Counter(tokens[prompt_length:]).items():
        target[token] -= times * params.frequency_penalty + params.presence_penalty
    if len(tokens) - prompt_length < params.min_tokens:
        for token in end_ids:
            target[token] = -math.inf
    return target


def log_softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    log_sum = top + math.log(sum(math.exp(logit - top) for logit in logits))
    return [logit - log_sum for logit in logits]


def token_detail(
    raw: Sequence[float], target: Sequence[float], token: int, params: SamplingParams
) -> TokenDetail | None:
    """What `params` asks to be told; of the filters, only temperature is known here."""
    if not params.tells:
        return None
    processed = leading = stats = None
    if params.processed_logprobs:
        greedy = params.temperature == 0
        processed = 0.0 if greedy else log_softmax([x / params.temperature for x in target])[token]
    if params.top_logprobs:
        logprobs = log_softmax(raw)
        ids = sorted(range(len(raw)), key=lambda one: (-raw[one], one))[: params.top_logprobs]
        leading = Alternatives(tuple(ids), tuple(logprobs[one] for one in ids))
    if params.stats_top_k:
        stats = token_stats(raw, params.stats_top_k)
    return TokenDetail(processed, leading, stats)


def token_stats(raw: Sequence[float], k: int) -> TokenStats:
    """Entropy, KL of uniform to p, and DeepConf's confidence, term by term."""
    logprobs, vocab = log_softmax(raw), len(raw)
    entropy = -sum(math.exp(lp) * lp for lp in logprobs if lp > -math.inf)
    certainty = -sum(math.log(vocab) + lp for lp in logprobs) / vocab
    leading = sorted(logprobs, reverse=True)[:k]
    return TokenStats(entropy, certainty, -sum(leading) / len(leading))
