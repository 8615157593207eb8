"""Draws from rows of logits in torch, with a sort: what `kernels.gpu.sample_rows` computes."""

import math

import torch
from torch import Tensor

from ..drawn import GREEDY_BELOW, Drawn, Filters
from ..noise import exponential


def sample_rows(
    logits: Tensor,
    temperature: Tensor,
    keys: Tensor,
    filters: Filters | None = None,
    *,
    out: Drawn | None = None,
) -> Drawn:
    """See `kernels.gpu.sample_rows.sample_rows`."""
    rows, vocab = logits.shape
    out = Drawn.empty(rows, logits.device) if out is None else out
    if not rows:
        return out
    logits = logits.float()
    peak = logits.amax(-1, keepdim=True)
    less = logits - peak
    ids = torch.arange(vocab, dtype=torch.int32, device=logits.device)
    greedy = temperature < GREEDY_BELOW
    if filters is not None:
        greedy = greedy | (filters.top_k == 1) | (filters.top_p == 0.0)
    scores = less / torch.where(greedy, 1.0, temperature)[:, None]
    raced = torch.where(greedy[:, None], less, scores.exp() / exponential(keys, ids))
    tokens = raced.argmax(-1)
    rounds = torch.ones_like(tokens)
    if filters is not None:
        tokens, rounds = _last_winners(
            raced, scores, tokens, filters, ~greedy & less.exp().sum(-1).isfinite()
        )
    _write_statistics(logits, peak, less, tokens, out)
    out.tokens.copy_(tokens)
    out.rounds.copy_(rounds)
    return out


def kept_tokens(scores: Tensor, filters: Filters) -> Tensor:
    """Which tokens the filters leave, boolean [rows, vocab], of tempered `scores` fp32 whose largest is 0."""
    vocab = scores.shape[1]
    values, order = scores.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(vocab, device=scores.device)
    limit = torch.where(filters.top_k > 0, filters.top_k, vocab).clamp(max=vocab)[:, None]
    top_p = filters.top_p[:, None]
    mass = values.exp()
    running = mass.cumsum(-1)
    total = running.gather(-1, limit.long() - 1)
    kept = (rank < limit) & ((running - mass < top_p * total) | (top_p >= 1.0))
    kept &= values >= filters.min_p.log()[:, None]
    kept[:, 0] = True
    return torch.zeros_like(kept).scatter_(-1, order, kept)


def _last_winners(
    raced: Tensor, scores: Tensor, tokens: Tensor, filters: Filters, narrow: Tensor
) -> tuple[Tensor, Tensor]:
    """The winners among the tokens that are left, int64 [rows], and the rounds it takes to find them without
    looking at more than one token; rows that are not `narrow` keep `tokens`."""
    order = scores.argsort(dim=-1, descending=True, stable=True)
    rank = order.argsort(-1)
    kept = kept_tokens(scores, filters) | ~narrow[:, None]
    likely = scores >= filters.min_p.log()[:, None]
    rounds = torch.ones_like(tokens)
    while True:
        lost = ~kept.gather(-1, tokens[:, None])[:, 0]
        if not bool(lost.any()):
            return tokens, rounds
        before = (rank < rank.gather(-1, tokens[:, None])) & likely
        tokens = torch.where(lost, raced.masked_fill(~before, float("-inf")).argmax(-1), tokens)
        rounds += lost


def _write_statistics(logits: Tensor, peak: Tensor, less: Tensor, tokens: Tensor, out: Drawn) -> None:
    """Those of the raw rows `logits` = `peak` + `less`."""
    weights = less.exp()
    total = weights.sum(-1)
    log_total = total.log()
    expected = (weights * less.masked_fill(less == float("-inf"), 0.0)).sum(-1) / total
    out.lse.copy_(peak[:, 0] + log_total)
    out.logprobs.copy_(logits.gather(-1, tokens[:, None])[:, 0] - out.lse)
    out.entropy.copy_(log_total - expected)
    out.certainty.copy_(log_total - less.mean(-1) - math.log(logits.shape[1]))
