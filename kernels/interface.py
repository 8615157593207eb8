"""What the engine asks of an attention back end."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from .tables import RowSpan


class PlannedStep(NamedTuple):
    """How a step attends. `order` lists its spans in packing order; rows of a span stay consecutive.
    `by_window` holds, per sliding window of the model (None: full attention), what `Attention.run` takes as
    its plan."""

    order: list[int]
    by_window: Mapping[int | None, Any]


class Attention(Protocol):
    """Attention of one model over its paged KV, one step at a time: `plan` the step, `run` it for each
    layer."""

    def plan(self, spans: Sequence[RowSpan]) -> PlannedStep:
        """Cut a step over `spans` (each with at least one row) into work items."""
        ...

    def run(self, query: Tensor, kv: Tensor, plan: Any, out: Tensor) -> None:
        """Attend with `query` [rows, heads, head_dim], packed in the step's order, over a layer's `kv` [2,
        blocks, kv_heads, block_size, head_dim]; write the first rows of `out` [.., heads * head_dim]. `query`
        and `kv` have one dtype."""
        ...


def agreed_order(orders: Sequence[list[int]]) -> list[int]:
    """The packing order of planners that must agree on it, for one packing serves all layers."""
    first, *others = orders
    if any(order != first for order in others):
        raise AssertionError("the planners of one model disagree on the packing order")
    return first
