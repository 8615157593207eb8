"""What the engine asks of an attention back end."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from .drawn import Drawn
from .linear import Product
from .tables import RowSpan


class PlannedStep(NamedTuple):
    """How a step attends. `order` lists its spans in packing order; rows of a span stay consecutive.
    `by_window` holds, per sliding window of the model (None: full attention), what `Attention.run` takes as
    its plan. A recorded pass may be replayed with another step's plan of an equal `form`; None: with no
    other."""

    order: list[int]
    by_window: Mapping[int | None, Any]
    form: Hashable | None = None


class Attention(Protocol):
    """Attention of one model over its paged KV, one step at a time: `plan` the step, `run` it for each
    layer."""

    masks_loads: bool
    """Whether keys and values that no row sees are never loaded, whatever lies there."""

    grouped: bool
    """Whether a layer's pool lies in groups of positions, as kernels/native/groups.h says, or in rows."""

    def plan(self, spans: Sequence[RowSpan]) -> PlannedStep:
        """Cut a step over `spans` (each with at least one row) into work items."""
        ...

    def run(self, query: Tensor, kv: Tensor, plan: Any, out: Tensor) -> None:
        """Attend with `query` [rows, heads, head_dim], packed in the step's order, over a layer's `kv` [2,
        blocks, kv_heads, block_size, head_dim]; write the first rows of `out` [.., heads * head_dim]. `query`
        and `kv` have one dtype."""
        ...

    def store(self, rows: Tensor, slots: Tensor, kv: Tensor) -> None:
        """Write `rows` [stored, 2 * kv_heads, head_dim], rotated keys and then values, to `slots` (see
        `KvCache.slots`) of a layer's `kv`."""
        ...


class Elementwise(Protocol):
    """What stands between the matrix products of a layer. A result may lie in work memory that the next call
    of the same method overwrites."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm of the rows of `x` [rows, n], times `weight` [n]."""
        ...

    def gate(self, gate_up: Tensor, *, fixed: bool) -> Tensor:
        """`silu(gate) * up` [rows, n] of `gate_up` [rows, 2n]. With `fixed` a row's bits do not depend on the
        others."""
        ...

    def join(
        self,
        product: Product,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        eps: float,
        row_tile: int | None,
    ) -> tuple[Tensor, Tensor]:
        """`residual` [rows, n] plus the product of `x`, and the norm of that sum as of `norm`; `residual` may
        be overwritten."""
        ...

    def rotation(
        self, cosine: Tensor, sine: Tensor, positions: Tensor, slots: Tensor, eps: float, *, grouped: bool
    ) -> Any:
        """What `rotate` needs in all layers of a step: tables [positions, head_dim] of the model's dtype,
        `sine` with its first half negated; `positions` int64 [rows]; `slots` int64 [stored * 2 * kv_heads]
        as in `KvCache.slots`; `eps` of the norms of queries and keys; `grouped` as attention says."""
        ...

    def rotate(
        self, qkv: Tensor, query_norm: Tensor | None, key_norm: Tensor | None, pool: Tensor, rotation: Any
    ) -> None:
        """Norm (where the model has one) and rotate the heads of `qkv` [rows, heads + 2 * kv_heads,
        head_dim]: queries in place, keys and values of the stored rows into `pool`."""
        ...


@runtime_checkable
class FusedHead(Protocol):
    """A vocabulary whose logits need not be written; `x` [rows, hidden] is normed."""

    @property
    def most_draws(self) -> int:
        """Rows that `draw` takes; 0 where there are no such kernels for this weight."""
        ...

    def draw(self, x: Tensor, temperature: Tensor, keys: Tensor) -> Drawn:
        """One draw per row that no filter narrows: `temperature` fp32 [rows], 0 for greedy; `keys` int32 [2,
        rows] from `noise.row_keys`."""
        ...

    def logprobs(self, x: Tensor, targets: Tensor) -> Tensor:
        """Natural-log probabilities fp32 [rows] of `targets` int64 [rows]."""
        ...


def agreed_order(orders: Sequence[list[int]]) -> list[int]:
    """The packing order of planners that must agree on it, for one packing serves all layers."""
    first, *others = orders
    if any(order != first for order in others):
        raise AssertionError("the planners of one model disagree on the packing order")
    return first
