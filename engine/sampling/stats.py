"""What rows of logits say about how sure the model was: `TokenStats` and the alternatives of a token."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .detail import Alternatives, TokenStats
from .ranking import ranked

_LEAST = -1e30
"""Stands for minus infinity where it is multiplied with a probability of 0."""


def token_stats(logits: Sequence[Tensor], top_k: Sequence[int]) -> list[TokenStats]:
    """Of each raw row of fp32 logits, [vocab] each; `top_k` holds a k for each.

    Row by row, so that a row stays in the cache through all passes and its sums do not depend on its
    neighbours.
    """
    found = [_row_stats(row, k) for row, k in zip(logits, top_k, strict=True)]
    return [TokenStats(*values) for values in torch.stack(found).tolist()]


class Sureness(NamedTuple):
    """What a kernel that read the raw rows found in passing: fp32 [rows], as `TokenStats` has them."""

    entropy: Tensor
    self_certainty: Tensor


def completed_stats(
    sureness: Sureness, normaliser: Tensor, logits: Tensor, top_k: Sequence[int]
) -> list[TokenStats]:
    """`token_stats` of fp32 `logits` [rows, vocab] of which only the confidence is to be found; `normaliser`
    fp32 [rows] is their logsumexp. All rows in a few operations and one transfer, means on the host: a
    device's sums of several rows may depend on how many there are."""
    leading = torch.topk(logits, min(max(top_k), logits.shape[1])).values
    known = torch.stack((*sureness, normaliser), 1)
    table = torch.cat((known, leading), 1).double().cpu().numpy()
    return [
        TokenStats(float(row[0]), float(row[1]), float(row[2] - row[3 : 3 + k].mean()))
        for row, k in zip(table, top_k, strict=True)
    ]


def alternatives(logits: Tensor, normaliser: Tensor, counts: Sequence[int]) -> list[Alternatives]:
    """The `counts` most likely tokens of each row of fp32 `logits` [rows, vocab]; `normaliser` fp32 [rows] is
    their logsumexp."""
    ids, values = ranked(logits, min(max(counts), logits.shape[1]))
    logprobs = values - normaliser[:, None]
    return [
        Alternatives(tuple(row_ids[:count]), tuple(row[:count]))
        for row_ids, row, count in zip(ids.tolist(), logprobs.tolist(), counts, strict=True)
    ]


def _row_stats(row: Tensor, k: int) -> Tensor:
    """Entropy, self-certainty and confidence of one row, fp32 [3].

    With x the row less its maximum and z = ln sum exp x: ln p = x - z, so that entropy is z - sum(p x),
    self-certainty z - mean(x) - ln V, and confidence z - mean(largest k of x).
    """
    vocab = row.numel()
    x = row - row.max()
    leading = torch.topk(x, min(k, vocab)).values.mean()
    mean = x.mean()
    weights = x.exp()
    total = weights.sum()
    expected = torch.dot(weights, x.clamp_(min=_LEAST)) / total
    z = total.log()
    return torch.stack((z - expected, z - mean - math.log(vocab), z - leading))
