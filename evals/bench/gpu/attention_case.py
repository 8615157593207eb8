"""A step of attention over random keys and values, and its result in float64."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ....kernels.attention import HeadShape
from ....kernels.bounds import Shape, Tree
from ....kernels.dispatch import make_attention
from ....kernels.interface import Attention, PlannedStep
from ....kernels.item_attention import ItemAttention, PlannedWork
from ....kernels.plan import capacity_for
from ....kernels.tables import RowSpan, TreeSpan
from .setting import Setting
from .spans import shuffled, tree_of

_SPARE = 4


class AttentionCase:
    """The rows of `spans` at heads of `shape`, over a pool of `layers` layers with blocks of `size`. Queries
    are part of wider rows, as the engine has them. Block 0 holds zeros."""

    def __init__(
        self,
        setting: Setting,
        spans: Sequence[RowSpan],
        size: int,
        *,
        shape: Shape | None = None,
        dtype: torch.dtype | None = None,
        layers: int = 1,
    ) -> None:
        self.shape = shape or setting.sizes.shape
        self.spans = shuffled(spans)
        self.size = size
        self._setting = setting
        self._dtype = dtype or setting.dtype
        heads, kv_heads, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        self.rows = sum(span.rows for span in spans)
        self._longest = max(len(span.blocks) for span in spans)
        blocks = 1 + max(max(span.blocks) for span in spans)
        self.pool = setting.normal(layers, 2, blocks, kv_heads, size, dim, dtype=self._dtype)
        self.pool[:, :, 0] = 0
        self._qkv = setting.normal(self.rows, heads + 2 * kv_heads, dim, dtype=self._dtype)
        self.out = torch.zeros(self.rows, heads * dim, dtype=self._dtype, device=setting.device)

    @property
    def query(self) -> Tensor:
        """[rows, heads, head_dim]."""
        return self._qkv[:, : self.shape.heads]

    def heads(self, softcap: float | None = None) -> HeadShape:
        """As attention takes them."""
        shape = self.shape
        blocks = self.pool.shape[2]
        return HeadShape(shape.heads, shape.kv_heads, shape.head_dim, self.size, blocks, softcap=softcap)

    def dispatched(self) -> Attention:
        """The attention that an engine would use here."""
        return make_attention(
            self.heads(),
            self.size,
            (None,),
            self._dtype,
            self._setting.device,
            longest=self._longest * self.size,
            max_rows=self.rows + _SPARE,
            deterministic=False,
        )

    def items(
        self,
        *,
        tma: bool,
        programs: int,
        windows: Iterable[int | None] = (None,),
        chunk: int | None = None,
        softcap: float | None = None,
    ) -> ItemAttention:
        """The attention by work items in one configuration."""
        capacity = capacity_for(
            self.rows + _SPARE, len(self.spans) + _SPARE, self._longest + _SPARE, self.size, chunk=chunk
        )
        heads, device = self.heads(softcap), self._setting.device
        return ItemAttention(
            heads, windows, device, capacity, programs=programs, chunk=chunk, triton=True, tma=tma
        )

    def run(self, attention: Attention, planned: PlannedStep, window: int | None = None) -> None:
        """All layers, one after the other."""
        for layer in self.pool:
            attention.run(self.query, layer, planned.by_window[window], self.out)

    def tree(self, planned: PlannedStep) -> Tree:
        """What the bounds need, with the partial results of this plan."""
        work: PlannedWork = planned.by_window[None]
        return tree_of(self.spans, self.size, work.work.slots)

    def exact(self, window: int | None = None, softcap: float | None = None) -> Tensor:
        """The result of the first layer in float64, [rows, heads * head_dim], in the order of the spans."""
        results: list[Tensor] = []
        first = 0
        scale = self.heads().scale
        for span in self.spans:
            asked = self.query[first : first + span.rows].double()
            asked = asked.unflatten(1, (self.shape.kv_heads, -1))
            first += span.rows
            length = span.start + span.rows
            table = torch.tensor(span.blocks[: -(-length // self.size)], device=self.pool.device)
            keys, values = self.pool[0][:, table].transpose(2, 3).flatten(1, 2)[:, :length].double()
            scores = torch.einsum("rhgd,khd->rhgk", asked, keys) * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            hidden = ~_visible(span, window).to(scores.device)
            scores = scores.masked_fill(hidden[:, None, None], float("-inf"))
            results.append(torch.einsum("rhgk,khd->rhgd", scores.softmax(-1), values).flatten(1))
        return torch.cat(results)


def _visible(span: RowSpan, window: int | None) -> Tensor:
    """Which positions each row sees, bool [rows, positions]."""
    length = span.start + span.rows
    place = torch.arange(length)
    row = torch.arange(span.start, length)[:, None]
    if isinstance(span, TreeSpan):
        assert window is None, "windows over draft trees are not checked here"
        bits = torch.tensor([_signed(one) for one in span.ancestors])[:, None]
        node = (place - span.start).clamp(min=0)
        return (place < span.start) | ((bits >> node) & 1 != 0)
    visible = place <= row
    return visible if window is None else visible & (place > row - window)


def _signed(bits: int) -> int:
    """A 64-bit word as a two's complement integer."""
    return bits - (1 << 64) if bits >> 63 else bits
