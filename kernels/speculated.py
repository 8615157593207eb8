"""What the kernels of speculation take and give, the same for the Triton kernels and for torch."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class ChainKeys(NamedTuple):
    """Noise keys of chains of `n` drafts, int32, from `noise.row_keys`: `accept` (Purpose.ACCEPT) and
    `residual` (Purpose.RESIDUAL) [2, batch, n] for the positions of the drafts, `token` (Purpose.TOKEN)
    [2, batch] for the position behind a chain's last draft."""

    accept: Tensor
    residual: Tensor
    token: Tensor


@dataclass(frozen=True, slots=True)
class Accepted:
    """What verified chains give: `tokens` int32 [batch, n + 1], the accepted drafts and one token more, then
    -1; `lengths` int32 [batch], how many tokens that is."""

    tokens: Tensor
    lengths: Tensor

    @classmethod
    def empty(cls, batch: int, drafts: int, device: torch.device) -> "Accepted":
        """Room for `batch` chains of at most `drafts` drafts."""
        tokens = torch.empty((batch, drafts + 1), dtype=torch.int32, device=device)
        return cls(tokens, torch.empty(batch, dtype=torch.int32, device=device))


@dataclass(frozen=True, slots=True)
class Walked:
    """The way through draft trees: `nodes` int32 [batch, depth], the rows passed, and `tokens` int32 [batch,
    depth], what was drawn at each; -1 behind `lengths` int32 [batch]."""

    nodes: Tensor
    tokens: Tensor
    lengths: Tensor

    @classmethod
    def empty(cls, batch: int, depth: int, device: torch.device) -> "Walked":
        """Room for `batch` ways of at most `depth` nodes."""
        both = torch.empty((2, batch, depth), dtype=torch.int32, device=device)
        return cls(both[0], both[1], torch.empty(batch, dtype=torch.int32, device=device))
