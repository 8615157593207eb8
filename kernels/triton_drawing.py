"""Draws from rows of logits by the Triton kernels, and the parameters that they read."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .drawn import Drawn, Filters, RowParameters
from .gpu.chain_verify import chain_verify
from .gpu.sample_rows import sample_rows
from .noise import Purpose
from .speculated import ChainKeys
from .staged import Staged

_ALIGNED = 4
"""Words in the 16 bytes that pointers of kernels should be multiples of."""


class OnDevice(NamedTuple):
    """What the kernels read."""

    keys: Tensor
    temperature: Tensor
    filters: Filters


class TritonDrawing:
    """Sends the parameters of all rows in one copy, and draws."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._words = Staged((6 * 64,), torch.int32, device)

    def draw(self, logits: Tensor, rows: RowParameters) -> Drawn:
        """One draw per row of `logits` [rows, vocab], fp32 or bf16."""
        sent = self.send(rows)
        return sample_rows(logits, sent.temperature, sent.keys, sent.filters if rows.filters else None)

    def test(
        self, p: Tensor, q: Tensor | None, drafts: Sequence[int], keys: Callable[[Purpose], Tensor]
    ) -> Tensor:
        """The ratio test of one drafted token per row: the draft where it is accepted, else a draw from the
        residual; int32 [rows].

        `p` fp32 [rows, vocab] are the target's probabilities, `q` those that the drafts were drawn from, None
        for drafts chosen without chance. `keys` gives int32 [2, rows] on the host, as `row_keys` does.
        """
        rows, vocab = p.shape
        device = p.device
        # A chain of one draft; nobody asks for the token behind it.
        target = p[:, None].expand(rows, 2, vocab).contiguous()
        accept, residual = (
            keys(purpose).to(device)[:, :, None] for purpose in (Purpose.ACCEPT, Purpose.RESIDUAL)
        )
        chains = ChainKeys(accept, residual, keys(Purpose.TOKEN).to(device))
        chosen = torch.tensor(drafts, dtype=torch.int32).to(device)[:, None]
        drafted = None if q is None else q[:, None].contiguous()
        return chain_verify(target, drafted, chosen, torch.ones_like(chosen[:, 0]), chains).tokens[:, 0]

    def send(self, rows: RowParameters) -> OnDevice:
        """The parameters on the device, until the next call."""
        count = len(rows.temperature)
        width = -(-count // _ALIGNED) * _ALIGNED
        places = [2 * width + index * width for index in range(4)]
        if 6 * width > self._words.tensor.numel():
            self._words = Staged((12 * width,), torch.int32, self._device)
        words = self._words.writable()
        words[: 2 * count] = rows.keys.numpy().reshape(-1)
        values = (rows.temperature, rows.top_k, rows.top_p, rows.min_p)
        for place, column in zip(places, values, strict=True):
            kind = np.int32 if column is rows.top_k else np.float32
            words[place : place + count] = np.asarray(column, kind).view(np.int32)
        sent = self._words.send()
        temperature, top_k, top_p, min_p = (sent[place : place + count] for place in places)
        fp32 = torch.float32
        return OnDevice(
            keys=sent[: 2 * count].view(2, count),
            temperature=temperature.view(fp32),
            filters=Filters(top_k, top_p.view(fp32), min_p.view(fp32)),
        )
