"""The most likely tokens of a row, and which of equal ones come first: the lower ids, whatever is looked at.

`torch.topk` leaves open which of equal scores it returns, and logits of bf16 models are full of equal ones.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Ranked(NamedTuple):
    """`ids` int64 and `scores` fp32, [rows, n] each: by falling score, equal scores by rising id."""

    ids: Tensor
    scores: Tensor


def ranked(scores: Tensor, width: int) -> Ranked:
    """The `width` first of `scores` fp32 [rows, vocab]."""
    values, ids = torch.topk(scores, min(width + 1, scores.shape[-1]), dim=-1)
    counts = torch.full((scores.shape[0],), width, device=scores.device)
    ids = with_lowest_ids(ids, values, scores, counts)[:, :width]
    ids, order = ids.sort(dim=-1)
    values, order = values[:, :width].gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return Ranked(ids.gather(-1, order), values)


def with_lowest_ids(ids: Tensor, values: Tensor, scores: Tensor, counts: Tensor) -> Tensor:
    """`ids`, where of the tokens that tie for the last of the first `counts` [rows] columns of a row those
    with the lowest ids come first.

    `values` and `ids` [rows, n] are what `torch.topk` gave for `scores` [rows, vocab]; there are columns
    behind `counts`, or n is the vocabulary.
    """
    last = values.gather(-1, counts[:, None] - 1)
    above, upto = (values > last).sum(-1), (values >= last).sum(-1)
    parted = (upto > counts) & (last[:, 0] > float("-inf"))
    rows = parted.nonzero()[:, 0]
    if not rows.numel():
        return ids
    ids = ids.clone()
    whole = values.shape[1] == scores.shape[1]
    for row, first, end in torch.stack((rows, above[rows], upto[rows]), dim=1).tolist():
        tied = ids[row, first:end]
        if end < values.shape[1] or whole:
            tied.copy_(tied.sort().values)
        else:
            tied.copy_((scores[row] == last[row]).nonzero()[: end - first, 0])
    return ids
