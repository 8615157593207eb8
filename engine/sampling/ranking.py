"""The most likely tokens of a row in an order that the row alone decides."""

from typing import NamedTuple

import torch
from torch import Tensor

_BEYOND = 32
"""Columns looked at behind the last one asked for: equal scores seldom reach further."""


class Ranked(NamedTuple):
    """`ids` int64 and `scores` fp32, [rows, n] each: by falling score, equal scores by rising id."""

    ids: Tensor
    scores: Tensor


def ranked(scores: Tensor, width: int) -> Ranked:
    """The `width` first of `scores` fp32 [rows, vocab].

    `torch.topk` leaves open which of equal scores it returns, and logits of bf16 models are full of equal
    ones.
    """
    vocab = scores.shape[-1]
    values, ids = torch.topk(scores, min(width + _BEYOND, vocab), dim=-1)
    if bool((values[:, 1:] == values[:, :-1]).any()):
        ids, values = _settled(ids, values)
    if width + _BEYOND < vocab:
        for row in (values[:, width - 1] == values[:, -1]).nonzero()[:, 0].tolist():
            _take_lowest(ids[row, :width], values[row, :width], scores[row])
    return Ranked(ids[:, :width], values[:, :width])


def _settled(ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Equal values in the order of their ids."""
    ids, order = ids.sort(dim=-1)
    values, order = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, order), values


def _take_lowest(ids: Tensor, values: Tensor, scores: Tensor) -> None:
    """More tokens tie for the last places of one row than were looked at: `ids` is to hold the lowest."""
    last = values[-1]
    if bool(last == float("-inf")):
        return
    first = int((values > last).sum())
    ids[first:] = (scores == last).nonzero()[: ids.numel() - first, 0]
