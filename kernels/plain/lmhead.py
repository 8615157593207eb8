"""The LM head with draws or scores behind it in torch, by way of the logits: what `kernels.gpu.lmhead_sample`
and `kernels.gpu.lmhead_lse` compute."""

import torch
from torch import Tensor

from ..drawn import Drawn, Scored
from .sampling import sample_rows

_ROWS = 256
"""Rows whose logits stand at once."""


def lmhead_sample(
    hidden: Tensor, weight: Tensor, temperature: Tensor, keys: Tensor, *, out: Drawn | None = None
) -> Drawn:
    """See `kernels.gpu.lmhead_sample.lmhead_sample`."""
    return sample_rows(_logits(hidden, weight), temperature, keys, out=out)


def lmhead_lse(hidden: Tensor, weight: Tensor, targets: Tensor, *, out: Scored | None = None) -> Scored:
    """See `kernels.gpu.lmhead_lse.lmhead_lse`."""
    rows = hidden.shape[0]
    out = Scored.empty(rows, hidden.device) if out is None else out
    for start in range(0, rows, _ROWS):
        part = slice(start, start + _ROWS)
        logits = _logits(hidden[part], weight)
        torch.logsumexp(logits, -1, out=out.lse[part])
        out.logprobs[part] = logits.gather(-1, targets[part, None].long())[:, 0] - out.lse[part]
    return out


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """Fp32 sums, not rounded to the operands' type."""
    return hidden.float() @ weight.float().T
