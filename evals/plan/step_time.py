"""How long a machine takes for one step of the scheduler: the bounds of `kernels.bounds`, part by part."""

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...engine.models.config import ModelConfig
from ...engine.sched.plan import ModelPlan, Span
from ...kernels.bounds import (
    Shape,
    Tree,
    attention,
    copy_blocks,
    matmul,
    rmsnorm_residual,
    rope_kv_write,
    sample_rows,
    silu_mul,
)
from .machine import Machine

POSITIONS_PER_ITEM = 1024
"""Positions that one work item of attention reads, for the count of partial results: `kernels.work` cuts near
that, and these results are little beside the KV."""


class StepSeconds(NamedTuple):
    """One step's parts, in seconds: matrix products of the layers, attention, head with draws, what lies
    between them with copies of blocks, host."""

    products: float = 0.0
    attention: float = 0.0
    head: float = 0.0
    other: float = 0.0
    host: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)

    def plus(self, more: "StepSeconds") -> "StepSeconds":
        """Both, one behind the other."""
        return StepSeconds(*(one + other for one, other in zip(self, more, strict=True)))


class _Rows(NamedTuple):
    """What spans of one kind have in their rows: how many, the positions that they see, each counted once,
    the sum of what each row sees, and partial results."""

    rows: int
    unique: int
    paths: int
    slots: int

    def within(self, window: int | None) -> Tree:
        """As the bounds take it, in a layer that sees no more than the last `window` positions."""
        if window is None:
            return Tree(*self)
        paths = min(self.paths, self.rows * window)
        slots = min(self.slots, self.rows * (1 + window // POSITIONS_PER_ITEM))
        return Tree(self.rows, min(self.unique, paths), paths, slots)


class StepClock:
    """Times the steps of one model; `element_bytes` per element of weights, activations and KV. Not
    thread-safe."""

    def __init__(
        self,
        config: ModelConfig,
        machine: Machine,
        *,
        element_bytes: int,
        block_size: int,
        num_blocks: int,
    ) -> None:
        self._config = config
        self._machine = machine
        self._roofline = machine.roofline
        self._block_size = block_size
        self._seen = np.zeros(num_blocks, dtype=bool)
        self._tables: dict[int, tuple[tuple[int, ...], np.ndarray]] = {}
        self.shape = Shape(
            layers=config.layers,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            hidden=config.hidden,
            intermediate=config.intermediate,
            vocabulary=config.head_columns,
            element_bytes=element_bytes,
        )

    def seconds(self, plan: ModelPlan) -> StepSeconds:
        """The time of the plan's rows. The step's own fixed cost is not in it: it is one for all models."""
        rows = sum(len(span.tokens) for span in plan.spans)
        head = _head_rows(plan.spans)
        draws = sum(len(span.samples) for span in plan.spans) + len(plan.kept_samples)
        machine = self._machine
        copies = copy_blocks(self.shape, len(plan.copies), self._block_size).seconds(self._roofline)
        return StepSeconds(
            products=self._products(rows),
            attention=self._attention(plan.spans),
            head=self._head(head, draws),
            other=self._between(rows) + copies,
            host=draws * machine.draw_s,
        )

    def _product(self, rows: int, inputs: int, outputs: int) -> float:
        """Seconds of one product at the machine's rate for so many rows."""
        if rows == 0:
            return 0.0
        bound = matmul(rows, inputs, outputs, self.shape.element_bytes)
        return max(
            bound.bytes / self._machine.bytes_per_s, bound.flops / self._machine.product_flops_per_s(rows)
        )

    def _products(self, rows: int) -> float:
        shape = self.shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        layer = (
            self._product(rows, shape.hidden, width + 2 * kv_width)
            + self._product(rows, width, shape.hidden)
            + self._product(rows, shape.hidden, 2 * shape.intermediate)
            + self._product(rows, shape.intermediate, shape.hidden)
        )
        return shape.layers * layer

    def _attention(self, spans: Iterable[Span]) -> float:
        single = [span for span in spans if len(span.tokens) == 1]
        runs = [span for span in spans if len(span.tokens) > 1]
        return self._attention_of(single, prefill=False) + self._attention_of(runs, prefill=True)

    def _attention_of(self, spans: list[Span], *, prefill: bool) -> float:
        """Over all layers; those of one window take the same time."""
        if not spans:
            return 0.0
        rows, windows = self._rows(spans), self._config.windows
        rate = self._machine.attention_flops_per_s(prefill=prefill)
        seconds = 0.0
        for window in set(windows):
            bound = attention(self.shape, rows.within(window))
            layer = max(bound.bytes / self._machine.bytes_per_s, bound.flops / rate)
            seconds += windows.count(window) * layer
        return seconds

    def _rows(self, spans: list[Span]) -> _Rows:
        rows = paths = slots = 0
        for span in spans:
            count, stop = len(span.tokens), span.start + len(span.tokens)
            rows += count
            paths += (span.start + 1 + stop) * count // 2
            slots += count * (1 + stop // POSITIONS_PER_ITEM)
        return _Rows(rows, self._unique(spans), paths, slots)

    def _unique(self, spans: list[Span]) -> int:
        """Positions in the blocks of all spans, a shared block counted once."""
        seen, tables = self._seen, [self._table(span) for span in spans]
        blocks = np.concatenate(tables)
        seen[blocks] = True
        count = int(seen.sum()) if len(blocks) > len(seen) else len(np.unique(blocks))
        seen[blocks] = False
        open_ends = sum(-(span.start + len(span.tokens)) % self._block_size for span in spans)
        return max(1, count * self._block_size - open_ends)

    def _table(self, span: Span) -> np.ndarray:
        """The span's table as an array; a table is the same object while it is unchanged."""
        found = self._tables.get(span.seq)
        if found is None or found[0] is not span.blocks:
            if len(self._tables) > 8 * len(self._seen):
                self._tables.clear()
            found = self._tables[span.seq] = (span.blocks, np.asarray(span.blocks, np.int64))
        return found[1]

    def _head(self, rows: int, draws: int) -> float:
        shape, machine = self.shape, self._machine
        sweep = sample_rows(shape, draws, sweeps=2).seconds(self._roofline)
        return self._product(rows, shape.hidden, shape.vocabulary) + max(
            sweep, draws * shape.vocabulary * machine.logit_s
        )

    def _between(self, rows: int) -> float:
        """Norms, rotations and activations, where they are not in the measured rates of layers."""
        if self._machine.products:
            return 0.0
        shape = self.shape
        moved = [rope_kv_write(shape, rows), silu_mul(shape, rows), *[rmsnorm_residual(shape, rows)] * 2]
        return shape.layers * sum(bound.seconds(self._roofline) for bound in moved)


def _head_rows(spans: Iterable[Span]) -> int:
    """Rows whose output head is computed: each that is drawn from, kept or scored, once."""
    rows = 0
    for span in spans:
        positions = {sample.position - 1 for sample in span.samples}
        if span.keep_logits:
            positions.add(span.start + len(span.tokens) - 1)
        rows += len(positions.union(chain(span.reward_at, span.logprob_at)))
    return rows
