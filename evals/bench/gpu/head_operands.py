"""What draws and scores of the GPU check read."""

from typing import NamedTuple

import torch
from torch import Tensor

from ....kernels.bounds import Shape
from ....kernels.drawn import Filters
from ....kernels.noise import Purpose, row_keys
from ....kernels.speculated import ChainKeys
from .setting import Setting

SPREAD = 3.0
"""Standard deviation of logits: some tokens are far more likely than others, as of a model."""


def keys_for(setting: Setting, count: int, purpose: Purpose, first: int = 0) -> Tensor:
    """Noise keys int32 [2, count]."""
    places = range(first, first + count)
    return row_keys([1_000_003 * (place + 1) for place in places], list(places), purpose).to(setting.device)


def temperatures(setting: Setting, count: int) -> Tensor:
    """From 0.6 to 1.3; every eighth row is greedy."""
    degrees = 0.6 + 0.7 * torch.arange(count, device=setting.device) / count
    degrees[::8] = 0.0
    return degrees.float()


def filters(setting: Setting, count: int, top_p: float = 0.95) -> Filters:
    """Nucleus for all rows alike."""
    full = {"device": setting.device, "dtype": torch.float32}
    top_k = torch.zeros(count, dtype=torch.int32, device=setting.device)
    return Filters(top_k, torch.full((count,), top_p, **full), torch.zeros(count, **full))


def mixed_filters(setting: Setting, count: int) -> Filters:
    """Rows with top-k, top-p, min-p, two of them, and none."""
    row = torch.arange(count, device=setting.device)
    top_k = torch.where(row % 3 == 0, 40, 0).to(torch.int32)
    top_p = torch.where(row % 2 == 0, 0.9, 1.0)
    min_p = torch.where(row % 5 == 0, 0.05, 0.0)
    return Filters(top_k, top_p, min_p)


class Chains(NamedTuple):
    """Arguments of `chain_verify`, and the target's tokens at draft nodes for `tree_walk`."""

    target: Tensor
    drafted: Tensor
    drafts: Tensor
    sizes: Tensor
    keys: ChainKeys


def chains(setting: Setting, shape: Shape, batch: int, drafts: int) -> Chains:
    """Chains of up to `drafts` drafts whose distribution is near the target's."""
    logits = setting.normal(batch, drafts + 1, shape.vocabulary, dtype=torch.float32, deviation=SPREAD)
    target = logits.softmax(-1)
    off = setting.normal(batch, drafts, shape.vocabulary, dtype=torch.float32, deviation=0.5)
    drafted = (logits[:, :-1] + off).softmax(-1).contiguous()
    noise = -torch.log1p(-torch.rand(drafted.shape, device=setting.device, generator=setting.generator))
    chosen = (drafted / noise.clamp(min=1e-20)).argmax(-1).to(torch.int32)
    sizes = (torch.arange(batch, device=setting.device) % (drafts + 1)).to(torch.int32)
    sizes[: batch // 2] = drafts
    both = [
        keys_for(setting, batch * drafts, purpose).view(2, batch, drafts)
        for purpose in (Purpose.ACCEPT, Purpose.RESIDUAL)
    ]
    keys = ChainKeys(both[0], both[1], keys_for(setting, batch, Purpose.TOKEN))
    return Chains(target, drafted, chosen, sizes, keys)


class Trees(NamedTuple):
    """Arguments of `tree_walk`."""

    parents: Tensor
    tokens: Tensor
    drawn: Tensor
    sizes: Tensor
    depth: int


def trees(setting: Setting, batch: int, nodes: int) -> Trees:
    """Trees whose drafts hold what the target drew about every second time."""
    parents = torch.tensor([-1, *(max(0, (node - 1) // 2) for node in range(1, nodes))], dtype=torch.int32)
    tokens = setting.integers(3, batch, nodes, dtype=torch.int32)
    drawn = setting.integers(3, batch, nodes, dtype=torch.int32)
    sizes = torch.full((batch,), nodes, dtype=torch.int32, device=setting.device)
    spread = parents.to(setting.device).repeat(batch, 1).contiguous()
    return Trees(spread, tokens, drawn, sizes, min(8, nodes))
