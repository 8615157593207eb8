"""Chains of drafts to verify, and what the ratio test of the CPU path makes of them, draft by draft."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from branchwise.engine.sampling.drafting import Proposal
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.ratio import ratio_test
from branchwise.engine.sampling.target import Draw
from branchwise.kernels.noise import Purpose, exponential, row_keys
from branchwise.kernels.speculated import Accepted, ChainKeys
from hypothesis import strategies as st
from torch import Tensor


@dataclass(frozen=True)
class Chains:
    """`target` [batch, n + 1, vocab], `drafted` [batch, n, vocab] or None, `drafts` [batch, n], and each
    chain's size, seed and first position."""

    target: Tensor
    drafted: Tensor | None
    drafts: Tensor
    sizes: list[int]
    seeds: list[int]
    starts: list[int]

    @property
    def arguments(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor, ChainKeys]:
        """Those of `chain_verify`."""
        sizes = torch.tensor(self.sizes, dtype=torch.int32)
        return self.target, self.drafted, self.drafts, sizes, self._keys()

    def expected(self) -> list[list[int]]:
        """The tokens that each chain leaves, by `ratio_test` at each draft."""
        return [self._left(chain) for chain in range(len(self.sizes))]

    def _left(self, chain: int) -> list[int]:
        vocab = torch.arange(self.target.shape[-1], dtype=torch.int32)
        seed, start, size = self.seeds[chain], self.starts[chain], self.sizes[chain]
        left: list[int] = []
        for place in range(size):
            x = int(self.drafts[chain, place])
            proposal = Proposal(x, None if self.drafted is None else self.drafted[chain, place])
            draw = Draw(0, seed, start + place, SamplingParams(), proposal=proposal)
            left.append(ratio_test(self.target[chain, place], draw, vocab))
            if left[-1] != x:
                return left
        noise = exponential(row_keys([seed], [start + size], Purpose.TOKEN), vocab)[0]
        return [*left, int((self.target[chain, size] / noise).argmax())]

    def _keys(self) -> ChainKeys:
        batch, longest = self.drafts.shape
        seeds = [seed for seed in self.seeds for _ in range(longest)]
        positions = [start + place for start in self.starts for place in range(longest)]
        behind = [start + size for start, size in zip(self.starts, self.sizes, strict=True)]
        return ChainKeys(
            row_keys(seeds, positions, Purpose.ACCEPT).view(2, batch, longest),
            row_keys(seeds, positions, Purpose.RESIDUAL).view(2, batch, longest),
            row_keys(self.seeds, behind, Purpose.TOKEN),
        )


def left(found: Accepted) -> list[list[int]]:
    """The tokens of each chain; what lies behind them is checked to be -1."""
    rows = []
    for row, length in zip(found.tokens.tolist(), found.lengths.tolist(), strict=True):
        assert set(row[length:]) <= {-1}
        rows.append(row[:length])
    return rows


@st.composite
def chains(draw: st.DrawFn, *, most: int = 6) -> Chains:
    """Drafts near and far from the target, sure drafts, and targets that leave out most tokens."""
    batch, longest = draw(st.integers(1, most)), draw(st.integers(1, 4))
    vocab = draw(st.integers(2, 60))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = torch.randn(batch, longest + 1, vocab, generator=generator) * 1.5
    noise = torch.randn(batch, longest, vocab, generator=generator)
    drafted = (logits[:, :-1] + draw(st.sampled_from([0.0, 0.4, 3.0])) * noise).softmax(-1)
    if draw(st.booleans()):
        logits[logits < 0.5] = -20.0
    drafts = torch.multinomial(drafted.view(-1, vocab), 1, generator=generator).view(batch, longest)
    return Chains(
        logits.softmax(-1),
        drafted if draw(st.booleans()) else None,
        drafts.to(torch.int32),
        draw(st.lists(st.integers(0, longest), min_size=batch, max_size=batch)),
        draw(st.lists(st.integers(0, 2**64 - 1), min_size=batch, max_size=batch)),
        draw(st.lists(st.integers(0, 10_000), min_size=batch, max_size=batch)),
    )
