"""Structured pruning of a reward model: the same layers and heads with fewer intermediate neurons."""

from collections.abc import Sequence
from typing import cast

import msgspec
import torch
from torch import Tensor

from .decoder import FeedForward, Layer, RewardModel


def importance(block: FeedForward) -> Tensor:
    """How much each intermediate neuron can move the residual stream, [intermediate]: the product of the
    norms of its three weight vectors."""
    gate, up, down = block.gate_proj.weight, block.up_proj.weight, block.down_proj.weight
    return gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)


@torch.no_grad()
def prune_neurons(model: RewardModel, intermediate_size: int) -> RewardModel:
    """A copy that keeps the most important neurons of each layer, in their order; train it on to recover."""
    config = msgspec.structs.replace(model.config, intermediate_size=intermediate_size)
    weights = dict(model.state_dict())
    for index, layer in enumerate(cast("Sequence[Layer]", model.model.layers)):
        kept = importance(layer.mlp).topk(intermediate_size).indices.sort().values
        for name, dim in (("gate_proj", 0), ("up_proj", 0), ("down_proj", 1)):
            key = f"model.layers.{index}.mlp.{name}.weight"
            weights[key] = weights[key].index_select(dim, kept)
    pruned = RewardModel(config, model.compute_dtype)
    pruned.load_state_dict(weights)
    return pruned
