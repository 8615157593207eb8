"""The product with a fixed order of sums, in torch."""

import torch
from torch import Tensor


def multiply(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    features: int,
    dtype: torch.dtype,
    *,
    inside: torch.dtype = torch.float32,
) -> Tensor:
    """`x @ weight.T` [rows, outputs], summed over `features` of them after the others, plus `bias` [outputs]
    and `residual` [rows, outputs] where given, rounded once to `dtype`."""
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=inside, device=x.device)
    for left, right in zip(x.split(features, 1), weight.split(features, 1), strict=True):
        total += left.to(inside) @ right.to(inside).T
    if bias is not None:
        total += bias.to(inside)
    if residual is not None:
        total += residual.to(inside)
    return total.to(dtype)
