"""The rows of logits that tokens are drawn from: raw rows under the rules of each draw's request.

Decode rows, kept rows and the first tokens of forks all pass here. Only the entries that a rule names are
touched, whatever the size of the vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from .drafting import Drafting, Proposal
from .params import SamplingParams
from .rules import Penalties, RowRules

_IMPOSSIBLE = float("-inf")


class Draw(msgspec.Struct, frozen=True, gc=False):
    """Sample the token for `position` of a branch with `seed` from row `row` of the logits; the other fields
    are those of `sched.plan.Sample`."""

    row: int
    seed: int
    position: int
    params: SamplingParams
    rules: RowRules | None = None
    drafted: tuple[int, ...] = ()
    proposal: Proposal | None = None
    drafting: Drafting | None = None


class _Ruled(NamedTuple):
    """A row of the target that rules change."""

    row: int
    position: int
    rules: RowRules
    drafted: tuple[int, ...]

    @property
    def penalties(self) -> Penalties | None:
        """With the counts of what stands before the position, drafted tokens included."""
        return self.rules.penalties and self.rules.penalties.behind(self.drafted)


class Target:
    """Makes the rows of one model's draws, in a buffer of its own that the next call overwrites: a fresh one
    of this size would cost more in page faults than the rules do in work."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._buffer = torch.empty((0, vocab_size), dtype=torch.float32, device=device)

    def rows(self, logits: Tensor, draws: Sequence[Draw]) -> Tensor:
        """Fp32 [draws, vocab] from the raw `logits` of the same shape, which are left as they are and are
        returned themselves where no rule changes a row. Bias, allowed tokens, penalties, end ids, the
        grammar, in this order."""
        ruled = [
            _Ruled(row, draw.position, draw.rules, draw.drafted)
            for row, draw in enumerate(draws)
            if draw.rules is not None and draw.rules.changes(draw.position)
        ]
        if not ruled:
            return logits
        target = self._copy(logits)
        _add_bias(target, ruled)
        _keep_allowed(target, ruled)
        _penalise(target, [(one.row, penalties) for one in ruled if (penalties := one.penalties)])
        _hold_ends_back(target, [one for one in ruled if one.rules.holds_back(one.position)])
        _keep_to_grammar(target, ruled)
        return target

    def _copy(self, logits: Tensor) -> Tensor:
        if self._buffer.shape[0] < logits.shape[0]:
            self._buffer = torch.empty_like(logits)
        return self._buffer[: logits.shape[0]].copy_(logits)


def _add_bias(target: Tensor, ruled: Sequence[_Ruled]) -> None:
    places = _places(target, [(one.row, one.rules.bias_ids) for one in ruled])
    values = torch.from_numpy(np.concatenate([one.rules.bias for one in ruled]))
    target.view(-1).index_add_(0, places, values.to(target.device))


def _keep_allowed(target: Tensor, ruled: Sequence[_Ruled]) -> None:
    allowed = [(one.row, one.rules.allowed) for one in ruled if one.rules.allowed is not None]
    if not allowed:
        return
    flat = target.view(-1)
    places = _places(target, allowed)
    kept = flat.index_select(0, places)
    target.index_fill_(0, torch.tensor([row for row, _ in allowed], device=target.device), _IMPOSSIBLE)
    flat.index_copy_(0, places, kept)


def _penalise(target: Tensor, ruled: Sequence[tuple[int, Penalties]]) -> None:
    if not ruled:
        return
    flat = target.view(-1)
    counted = [penalties.counts for _, penalties in ruled]
    sizes = [len(counts.ids) for counts in counted]
    pairs = zip(ruled, counted, strict=True)
    places = _places(target, [(row, np.array(counts.ids)) for (row, _), counts in pairs])

    def each(value: Callable[[Penalties], float]) -> Tensor:
        """A value of each row, beside every id counted in it."""
        values = np.array([value(penalties) for _, penalties in ruled], np.float32)
        return torch.from_numpy(np.repeat(values, sizes)).to(target.device)

    def counts_of(arrays: Sequence[Sequence[int]]) -> Tensor:
        return torch.from_numpy(np.concatenate([np.array(one, np.float32) for one in arrays])).to(
            target.device
        )

    everywhere = counts_of([counts.everywhere for counts in counted])
    behind = counts_of([counts.behind_prompt for counts in counted])
    logits = flat.index_select(0, places)
    repetition = each(lambda penalties: penalties.repetition)
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(everywhere > 0, repeated, logits)
    logits -= each(lambda penalties: penalties.frequency) * behind
    logits -= each(lambda penalties: penalties.presence) * (behind > 0)
    flat.index_copy_(0, places, logits)


def _hold_ends_back(target: Tensor, ruled: Sequence[_Ruled]) -> None:
    if ruled:
        places = _places(target, [(one.row, one.rules.end_ids) for one in ruled])
        target.view(-1).index_fill_(0, places, _IMPOSSIBLE)


def _keep_to_grammar(target: Tensor, ruled: Sequence[_Ruled]) -> None:
    masks = [
        (one.row, mask)
        for one in ruled
        if one.rules.grammar is not None and (mask := one.rules.grammar.allowed(one.drafted)) is not None
    ]
    if masks:
        rows = torch.tensor([row for row, _ in masks], device=target.device)
        forbidden = torch.from_numpy(~np.stack([mask for _, mask in masks])).to(target.device)
        target[rows] = target.index_select(0, rows).masked_fill_(forbidden, _IMPOSSIBLE)


def _places(target: Tensor, parts: Sequence[tuple[int, np.ndarray]]) -> Tensor:
    """Where the ids of each (row, ids) stand in the flattened target, int64."""
    vocab = target.shape[1]
    flat = np.concatenate([ids + row * vocab for row, ids in parts])
    return torch.from_numpy(flat).to(target.device)
