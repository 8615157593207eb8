"""What a model's matrix products alone would allow: the bound of any decode step at one batch size."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ...engine.models.config import ModelConfig, family_of, parse_config, read_fields
from ...engine.models.gguf import read_gguf
from ...engine.models.open import DTYPES
from ...kernels.dispatch import make_linear
from ...kernels.linear import Linear, Product

_REPEATS = 15


def product_bound(source: Path, rows: int, dtype: str) -> float | None:
    """Tokens per second of a decode step of `rows` rows that were its products alone: every matrix of the
    model in `source` once, prepacked, random values; with oneDNN or the native operator, whichever is faster
    here. None for a model that the own decoder does not know."""
    config = _config(source)
    if config is None:
        return None
    return rows / min(_seconds(config, rows, DTYPES[dtype], make) for make in (Linear, make_linear))


def _config(source: Path) -> ModelConfig | None:
    if source.suffix == ".gguf":
        return read_gguf(source).config
    fields = read_fields(source)
    return None if family_of(fields) is None else parse_config(fields, str(source))


def _seconds(config: ModelConfig, rows: int, dtype: torch.dtype, make: Callable[[Tensor], Product]) -> float:
    products: list[tuple[Product, Tensor]] = []
    inputs: dict[int, Tensor] = {}
    for outputs, features in _shapes(config):
        if features not in inputs:
            inputs[features] = torch.randn(rows, features).to(dtype)
        weight = (torch.randn(outputs, features) * features**-0.5).to(dtype)
        products.append((make(weight), inputs[features]))
    seconds = []
    with torch.inference_mode():
        for _ in range(_REPEATS):
            began = time.perf_counter()
            for product, x in products:
                product(x)
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _shapes(config: ModelConfig) -> list[tuple[int, int]]:
    """[outputs, inputs] of the products of one step, as the decoder merges them."""
    width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = [
        (width + 2 * kv_width, config.hidden),
        (config.hidden, width),
        (2 * config.intermediate, config.hidden),
        (config.hidden, config.intermediate),
    ]
    return [*(layer * config.layers), (config.head_columns, config.hidden)]
