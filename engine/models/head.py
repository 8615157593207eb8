"""The output heads of the own decoder: a vocabulary, or the few labels of a reward model."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from ...kernels.dispatch import make_linear
from ...kernels.linear import Product
from .config import HeadKind, ModelConfig

Take = Callable[[str], Tensor]
"""A tensor by its name, in the model's type and on its device."""

Maybe = Callable[[str], Tensor | None]


class Head(Protocol):
    """`x` [rows, hidden], normed, to values fp32 [rows, columns] which the next call may overwrite; with
    `row_tile`, rows is a multiple of it."""

    def wide(self, x: Tensor, row_tile: int | None = None) -> Tensor: ...


class _TwoLayers:
    """Linear, ReLU, linear: the head of Qwen2.5-Math-PRM."""

    def __init__(self, inner: Product, outer: Product) -> None:
        self._inner = inner
        self._outer = outer

    def wide(self, x: Tensor, row_tile: int | None = None) -> Tensor:
        return self._outer.wide(functional.relu(self._inner(x, row_tile)), row_tile)


def read_head(config: ModelConfig, embedding: Tensor, take: Take, maybe: Maybe) -> Head:
    """The head that `config` describes; `embedding` is the head of a model that ties both."""
    match config.head.kind:
        case HeadKind.SCORE:
            return make_linear(take("score.weight"), maybe("score.bias"))
        case HeadKind.TWO_LAYERS:
            layers = [
                make_linear(take(f"score.{index}.weight"), maybe(f"score.{index}.bias")) for index in (0, 2)
            ]
            return _TwoLayers(*layers)
        case HeadKind.VALUE:
            return make_linear(take("v_head.summary.weight"), maybe("v_head.summary.bias"))
        case HeadKind.LABEL_TOKENS:
            rows = torch.tensor(config.head.label_ids, device=embedding.device)
            return make_linear(_vocabulary(config, embedding, take).index_select(0, rows))
        case HeadKind.LM:
            return make_linear(_vocabulary(config, embedding, take))


def _vocabulary(config: ModelConfig, embedding: Tensor, take: Take) -> Tensor:
    return embedding if config.tied_head else take("lm_head.weight")
