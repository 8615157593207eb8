"""What the sampling kernels take and give, the same for the Triton kernels and for torch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: fp32 logits divided by them would only add rounding."""


_ALIGNED = 4
"""Words of 4 bytes in the 16 that Triton wants pointers to be multiples of: it compiles a kernel anew where
they are not."""


class Filters(NamedTuple):
    """Which tokens of a row can be drawn: `top_k` int32 [rows], 0 for all; `top_p` fp32 [rows], 1 for all;
    `min_p` fp32 [rows], 0 for all.

    top-p keeps the smallest set of the most likely tokens whose mass, among what top-k left, reaches it;
    min-p keeps what is at least so many times as likely as the most likely token. The first token always
    stays, and of equal logits the lowest id is the more likely.
    """

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor


@dataclass(frozen=True, slots=True)
class Drawn:
    """One draw per row of logits.

    `tokens` int32 [rows]; the others are of the raw row, at temperature 1 and with nothing filtered, fp32
    [rows] in natural logarithms: `logprobs` of the tokens, `lse` the log-sum-exp, `entropy`, and `certainty`,
    the divergence of the row from the uniform distribution. `rounds` int32 [rows] counts the races that the
    draw took. A row that holds NaN or plus infinity, or only minus infinity, has a log-probability that is
    not finite, and then its token means nothing.
    """

    tokens: Tensor
    logprobs: Tensor
    lse: Tensor
    entropy: Tensor
    certainty: Tensor
    rounds: Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> "Drawn":
        """Room for `rows` draws."""
        tokens, rounds = columns(2, rows, torch.int32, device)
        logprobs, lse, entropy, certainty = columns(4, rows, torch.float32, device)
        return cls(tokens, logprobs, lse, entropy, certainty, rounds)


@dataclass(frozen=True, slots=True)
class Scored:
    """Of given tokens: `logprobs` fp32 [rows], their natural-log probabilities, and `lse` fp32 [rows], the
    log-sum-exp of the rows."""

    logprobs: Tensor
    lse: Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> "Scored":
        """Room for `rows` tokens."""
        return cls(*columns(2, rows, torch.float32, device))


class RowParameters(NamedTuple):
    """One entry per row, on the host: `keys` int32 [2, rows] as `row_keys` makes them, and the filters as
    `Filters` has them, plain rows with 0, 1 and 0."""

    keys: Tensor
    temperature: Sequence[float]
    top_k: Sequence[int]
    top_p: Sequence[float]
    min_p: Sequence[float]

    @property
    def filters(self) -> bool:
        """Whether some row is narrowed."""
        return any(self.top_k) or any(p < 1.0 for p in self.top_p) or any(self.min_p)

    def whole(self) -> "RowParameters":
        """The same rows with nothing narrowed."""
        count = len(self.temperature)
        return self._replace(top_k=[0] * count, top_p=[1.0] * count, min_p=[0.0] * count)


def columns(count: int, rows: int, dtype: torch.dtype, device: torch.device) -> Iterable[Tensor]:
    """`count` tensors [rows] of 4-byte words in one allocation, each aligned to 16 bytes."""
    return torch.empty((count, -(-rows // _ALIGNED) * _ALIGNED), dtype=dtype, device=device)[
        :, :rows
    ].unbind()
