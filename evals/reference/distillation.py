"""The draft's loss: how far its distribution lies from the policy's, token by token."""

from collections.abc import Callable

import torch
from torch import Tensor

from .decoder import Decoder


def distillation_loss(policy: Decoder) -> Callable[[Decoder, Tensor, Tensor], Tensor]:
    """Mean KL(policy || draft) in nats over the weighted tokens of a batch, as a loss on the draft."""
    policy.requires_grad_(False)

    def loss(draft: Decoder, token_ids: Tensor, weights: Tensor) -> Tensor:
        inputs = token_ids[:, :-1]
        with torch.no_grad():
            wanted = policy(inputs).log_softmax(dim=-1)
        given = draft(inputs).log_softmax(dim=-1)
        divergences = (wanted.exp() * (wanted - given)).sum(dim=-1)
        targets = weights[:, 1:]
        return (divergences * targets).sum() / targets.sum()

    return loss


def overlap(policy_logits: Tensor, draft_logits: Tensor) -> Tensor:
    """1 - total variation distance of two next-token distributions, [..., V] logits to [...]; in [0, 1].

    It is the probability that speculative sampling accepts the draft's token (Leviathan et al. 2023).
    """
    return torch.minimum(policy_logits.softmax(dim=-1), draft_logits.softmax(dim=-1)).sum(dim=-1)
