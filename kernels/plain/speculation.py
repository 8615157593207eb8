"""Verification of drafts in torch, chain by chain and tree by tree: what `kernels.gpu.tree_walk` and
`kernels.gpu.chain_verify` compute."""

import torch
from torch import Tensor

from ..noise import exponential, uniform
from ..speculated import Accepted, ChainKeys, Walked


def tree_walk(
    parents: Tensor, tokens: Tensor, drawn: Tensor, sizes: Tensor, depth: int, *, out: Walked | None = None
) -> Walked:
    """See `kernels.gpu.tree_walk.tree_walk`."""
    out = Walked.empty(tokens.shape[0], depth, tokens.device) if out is None else out
    out.nodes.fill_(-1)
    out.tokens.fill_(-1)
    for tree, size in enumerate(sizes.tolist()):
        child = _children(parents[tree, :size].tolist(), tokens[tree, :size].tolist())
        targets = drawn[tree].tolist()
        nodes = [0]
        while len(nodes) < depth and (node := child.get((nodes[-1], targets[nodes[-1]]))) is not None:
            nodes.append(node)
        out.nodes[tree, : len(nodes)] = torch.tensor(nodes, dtype=torch.int32)
        out.tokens[tree, : len(nodes)] = torch.tensor([targets[node] for node in nodes], dtype=torch.int32)
        out.lengths[tree] = len(nodes)
    return out


def chain_verify(
    target: Tensor,
    drafted: Tensor | None,
    drafts: Tensor,
    sizes: Tensor,
    keys: ChainKeys,
    *,
    out: Accepted | None = None,
) -> Accepted:
    """See `kernels.gpu.chain_verify.chain_verify`."""
    batch, longest = drafts.shape
    vocab = target.shape[-1]
    out = Accepted.empty(batch, longest, target.device) if out is None else out
    if drafted is None:
        drafted = torch.zeros_like(target[:, :-1]).scatter_(-1, drafts[..., None].long(), 1.0)
    ids = torch.arange(vocab, dtype=torch.int32, device=target.device)
    place = torch.arange(longest, device=target.device)
    coins = uniform(keys.accept.reshape(2, -1), ids[:1]).view(batch, longest)
    x = drafts[..., None].long()
    p, q = target[:, :-1].gather(-1, x)[..., 0], drafted.gather(-1, x)[..., 0]
    held = (coins * q < p) & (place < sizes[:, None])
    accepted = held.long().cumprod(-1).sum(-1)
    refused = accepted < sizes

    rows = torch.arange(batch, device=target.device)
    tested = accepted.clamp(max=longest - 1)
    weights = target[rows, accepted]
    residual = (weights - drafted[rows, tested]).clamp_(min=0.0)
    subtracted = (refused & residual.any(-1))[:, None]  # else p is q but for rounding
    weights = torch.where(subtracted, residual, weights)
    key = torch.where(refused, keys.residual[:, rows, tested], keys.token)
    tokens = (weights / exponential(key, ids)).argmax(-1)
    out.tokens.fill_(-1)
    out.tokens[:, :-1] = torch.where(place < accepted[:, None], drafts, -1)
    out.tokens[rows, accepted] = tokens.to(torch.int32)
    out.lengths.copy_(accepted + 1)
    return out


def _children(parents: list[int], tokens: list[int]) -> dict[tuple[int, int], int]:
    """The first child of each (parent, token)."""
    found: dict[tuple[int, int], int] = {}
    for node in range(1, len(parents)):
        found.setdefault((parents[node], tokens[node]), node)
    return found
