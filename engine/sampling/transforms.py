"""Temperature, top-k, top-p and min-p: which tokens stay candidates, and with which scores.

A row's outcome depends on its own logits and parameters only, bit for bit: candidates are looked at in
falling order and all sums run in that order, of equal ones the lowest ids stay, so how many columns a
neighbour asked for makes no difference.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.drawn import GREEDY_BELOW
from .params import SamplingParams
from .ranking import with_lowest_ids

_FIRST_LOOK = 256


class Candidates(NamedTuple):
    """Tokens that survive the filters: `ids` int64 [rows, n] by falling score, `scores` fp32 [rows, n], -inf
    for removed."""

    ids: Tensor
    scores: Tensor


def is_greedy(params: SamplingParams) -> bool:
    """Whether only the most likely token can be drawn."""
    return params.temperature < GREEDY_BELOW or params.top_k == 1 or params.top_p == 0.0


def is_plain(params: SamplingParams) -> bool:
    """Whether the whole vocabulary has to be looked at."""
    return _most(params) == 0 and params.top_p == 1.0 and params.min_p == 0.0


def _most(params: SamplingParams) -> int:
    """No more tokens than this can stay candidates; 0 where that is no bound worth looking for."""
    allowed = len(params.allowed_tokens or ())
    bounds = (params.top_k, allowed if allowed <= _FIRST_LOOK else 0)
    return min((bound for bound in bounds if bound), default=0)


def tempered(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Logits over temperature, fp32 [rows, vocab], with each row's maximum moved to 0 so that nothing
    overflows."""
    scores = logits - logits.amax(-1, keepdim=True)
    first = params[0].temperature
    if all(row.temperature == first for row in params):
        return scores if first == 1.0 else scores.div_(first)
    return scores.div_(scores.new_tensor([row.temperature for row in params])[:, None])


def filtered(scores: Tensor, params: Sequence[SamplingParams]) -> Candidates:
    """Candidates of tempered `scores` fp32 [rows, vocab] under each row's top-k, then top-p, then min-p.
    Of a row with allowed tokens, all others are minus infinity already.

    top-p keeps the smallest set of the most likely tokens whose mass, among what top-k left, reaches `top_p`;
    min-p keeps what is at least `min_p` times as likely as the most likely token. The first token always
    stays.
    """
    vocab = scores.shape[-1]
    top_k = [min(_most(row) or vocab, vocab) for row in params]
    # One column more than top-k keeps: the next score shows whether equal ones were parted.
    width = min(vocab, max((k + 1 for k in top_k if k < vocab), default=0))
    if any(k == vocab for k in top_k):
        width = max(width, min(vocab, _FIRST_LOOK))
    limit = torch.tensor(top_k, device=scores.device)[:, None]
    top_p = scores.new_tensor([row.top_p for row in params])[:, None]
    floor = scores.new_tensor([row.min_p for row in params])[:, None].log_()
    unlimited = limit == vocab
    # Of all tokens, however many are looked at: another sum would round otherwise beside other rows.
    mass_of_all = scores.exp().sum(-1, keepdim=True) if any(k == vocab for k in top_k) else None
    while True:
        values, ids = torch.topk(scores, width, dim=-1)
        rank = torch.arange(width, device=scores.device)
        mass = values.exp()
        running = mass.cumsum(-1)
        total = running.gather(-1, limit.clamp(max=width) - 1)
        if mass_of_all is not None:
            total = torch.where(unlimited, mass_of_all, total)
        if width < vocab:
            # The last column looked at is still inside the nucleus of an unlimited row: look at more. Mass
            # that rounding hides is no reason to stop where all of it is wanted.
            short = (running[:, -1:] < top_p * total) | (top_p >= 1.0)
            inside = short & (values[:, -1:] >= floor) & unlimited
            if bool(inside.any()):
                width = min(vocab, width * 8)
                continue
        kept = (rank < limit) & ((running - mass < top_p * total) | (top_p >= 1.0)) & (values >= floor)
        kept[:, 0] = True
        ids = with_lowest_ids(ids, values, scores, kept.sum(-1))
        return Candidates(ids, values.masked_fill(~kept, float("-inf")))


def distribution(target: Tensor, params: SamplingParams) -> Tensor:
    """What a draw from the `target` logits [vocab] under temperature and filters follows: probabilities fp32
    [vocab]."""
    if is_greedy(params):
        return torch.zeros_like(target).index_fill_(0, target.argmax(-1, keepdim=True), 1.0)
    scores = tempered(target[None], [params])
    if is_plain(params):
        return scores.softmax(-1)[0]
    ids, scores = filtered(scores, [params])
    return torch.zeros_like(target).index_copy_(0, ids[0], scores.softmax(-1)[0])


def processed_logprobs(target: Tensor, params: Sequence[SamplingParams], tokens: Tensor) -> Tensor:
    """Natural-log probability, fp32 [rows], of each row's drawn token (int64 [rows]) in the distribution that
    it was drawn from: the `target` logits [rows, vocab] under temperature and filters. 0 where the draw was
    greedy."""
    result = torch.zeros(len(params), device=target.device)
    sampled = [index for index, row in enumerate(params) if not is_greedy(row)]
    for plain in (True, False):
        members = [index for index in sampled if is_plain(params[index]) is plain]
        if not members:
            continue
        index = torch.tensor(members, device=target.device)
        some = [params[member] for member in members]
        scores, drawn = tempered(target.index_select(0, index), some), tokens[index, None]
        if plain:
            chosen = scores.gather(-1, drawn)
        else:
            ids, scores = filtered(scores, some)
            chosen = scores.masked_fill(ids != drawn, float("-inf")).amax(-1, keepdim=True)
        result[index] = chosen[:, 0] - scores.logsumexp(-1)
    return result
