"""Muon for the weight matrices, AdamW for embeddings, gains and heads.

Muon (Jordan et al. 2024): momentum, then five Newton-Schulz iterations towards the nearest orthogonal matrix.
"""

import math

import torch
from torch import Tensor, nn

from .decoder import native_dtype

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
MOMENTUM = 0.95


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Nearly orthogonal matrices [N, rows, columns] with the singular vectors of the input."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x.to(native_dtype())
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon:
    """Muon over matrices of equal shape, which are handled as one stack."""

    def __init__(self, parameters: list[nn.Parameter], weight_decay: float) -> None:
        self.parameters = parameters
        self.weight_decay = weight_decay
        self.momentum = torch.zeros(len(parameters), *parameters[0].shape)
        rows, columns = parameters[0].shape
        self.scale = math.sqrt(max(1.0, rows / columns))

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update from the gradients (Nesterov momentum)."""
        gradients = torch.stack([_gradient(parameter) for parameter in self.parameters])
        self.momentum.lerp_(gradients, 1 - MOMENTUM)
        updates = orthogonalise(gradients.lerp(self.momentum, MOMENTUM))
        for parameter, update in zip(self.parameters, updates, strict=True):
            parameter.mul_(1 - learning_rate * self.weight_decay).add_(
                update, alpha=-learning_rate * self.scale
            )


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError("a parameter has no gradient")
    return parameter.grad


class Optimizer:
    """Both optimizers on one model, under one schedule factor."""

    def __init__(
        self, model: nn.Module, matrix_rate: float, vector_rate: float, weight_decay: float = 0.01
    ) -> None:
        self.model = model
        self.matrix_rate, self.vector_rate = matrix_rate, vector_rate
        by_shape: dict[torch.Size, list[nn.Parameter]] = {}
        others = []
        for name, parameter in model.named_parameters():
            if ".layers." in name and parameter.ndim == 2:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            else:
                others.append(parameter)
        self.muons = [Muon(group, weight_decay) for group in by_shape.values()]
        self.adam = torch.optim.AdamW(others, lr=vector_rate, betas=(0.9, 0.98), weight_decay=0.0)

    def step(self, factor: float) -> None:
        """Clip, update at `factor` times the peak rates, and clear the gradients."""
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for muon in self.muons:
            muon.step(self.matrix_rate * factor)
        for group in self.adam.param_groups:
            group["lr"] = self.vector_rate * factor
        self.adam.step()
        self.model.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, object]:
        """Momenta of all groups, for a checkpoint."""
        return {"muon": [muon.momentum for muon in self.muons], "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        """Take up the momenta of a checkpoint."""
        for muon, momentum in zip(self.muons, state["muon"], strict=True):
            muon.momentum.copy_(momentum)
        self.adam.load_state_dict(state["adam"])
