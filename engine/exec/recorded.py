"""Passes with fixed shapes at fixed addresses: recorded once per size, and replayed.

A CUDA graph repeats its kernels on the memory that they had when it was recorded. So all that changes from
step to step lies in buffers that are made once: tokens, positions and KV slots here, the plan's work items
in the attention. Rows are padded to the next size; the padding attends to nothing, and its keys and values
go to the trash block.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ...kernels.interface import Attention, PlannedStep
from ...kernels.linear import whole_tiles
from ...kernels.staged import Staged
from ...kernels.tables import RowSpan
from ..models.step_model import Batch, StepModel
from ..sched.plan import TRASH_BLOCK
from .cache import KvCache
from .passes import EagerPasses, StepRows

T = TypeVar("T")

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Rows of the recorded passes. What is larger is bound by its products, not by launches, and runs eagerly."""


class Recorder(Protocol):
    """Records work on a device."""

    def record(self, work: Callable[[], T]) -> Callable[[], T]:
        """What repeats `work` on the same memory, and returns what it returned when it was recorded, filled
        anew. `work` is run before, and neither waits for the device nor reads memory that others may move."""
        ...


class CudaRecorder:
    """Implements `Recorder` by CUDA graphs, which share one pool of memory: they are replayed one after the
    other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], T]) -> Callable[[], T]:
        """See `Recorder.record`."""
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            work()  # compiles kernels and makes the libraries' work memory, which a recording must not
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = work()

        def replay() -> T:
            graph.replay()
            return result

        return replay


def make_recorder(device: torch.device) -> Recorder | None:
    """None where launches cost so little that nothing is recorded."""
    return CudaRecorder(device) if device.type == "cuda" else None


class RecordedPasses:
    """Implements `Passes`: a recorded pass where there is a size for it and the plan can be replayed, an
    eager one elsewhere.

    Memory that the model and the attention grow with the rows is grown here once, for `max_rows`: it would
    move away from under a recording otherwise.
    """

    def __init__(
        self,
        decoder: StepModel,
        cache: KvCache,
        attention: Attention,
        row_tile: int | None,
        *,
        recorder: Recorder,
        max_rows: int,
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._attention = attention
        self._row_tile = row_tile
        self._recorder = recorder
        self._eager = EagerPasses(decoder, cache, attention, row_tile)
        most = whole_tiles(max_rows, row_tile)
        self._sizes = [size for size in SIZES if size <= most and size == whole_tiles(size, row_tile)]
        self._most = self._sizes[-1]
        self._inputs = Staged((4, self._most), torch.int64, decoder.device)
        self._chosen = Staged((self._most,), torch.int64, decoder.device)
        self._passes: dict[tuple[int, Hashable], Callable[[], Tensor]] = {}
        self._heads: dict[int, Callable[[], Tensor]] = {}
        self._hidden = self._grow(max_rows)

    @property
    def recordings(self) -> int:
        """How many were made."""
        return len(self._passes) + len(self._heads)

    def forward(self, rows: StepRows, planned: PlannedStep) -> Tensor:
        """See `Passes.forward`."""
        count = len(rows.tokens)
        size = self._size(count)
        if size is None or planned.form is None:
            return self._eager.forward(rows, planned)
        inputs = self._inputs.writable()
        for place, values in enumerate(rows):
            inputs[place, :count] = values
        inputs[:, count:size] = 0  # block 0 is the trash block
        self._inputs.send()
        key = size, planned.form
        if key not in self._passes:
            self._passes[key] = self._recorder.record(lambda: self._run(size, planned))
        self._passes[key]()
        return self._hidden[:count]

    def head(self, hidden: Tensor, chosen: Sequence[int]) -> Tensor:
        """See `Passes.head`."""
        if len(chosen) <= self._most:
            return self._some(hidden, chosen)
        parts = [chosen[first : first + self._most] for first in range(0, len(chosen), self._most)]
        return torch.cat([self._some(hidden, part).clone() for part in parts])

    def _some(self, hidden: Tensor, chosen: Sequence[int]) -> Tensor:
        """The head on no more rows than the largest recorded pass has: it keeps memory that grows with
        them."""
        if hidden.data_ptr() != self._hidden.data_ptr():
            return self._eager.head(hidden, chosen)
        size = self._size(len(chosen))
        assert size is not None
        rows = self._chosen.writable()
        rows[: len(chosen)], rows[len(chosen) : size] = chosen, 0
        self._chosen.send()
        if size not in self._heads:
            self._heads[size] = self._recorder.record(lambda: self._head(size))
        return self._heads[size]()[: len(chosen)]

    def _size(self, rows: int) -> int | None:
        return next((size for size in self._sizes if size >= rows), None)

    def _run(self, size: int, planned: PlannedStep) -> Tensor:
        hidden = self._decoder.forward(self._batch(size, planned), self._cache.blocks, self._attention)
        return self._hidden[:size].copy_(hidden)

    def _head(self, size: int) -> Tensor:
        chosen = self._hidden.index_select(0, self._chosen.tensor[:size])
        return self._decoder.head(chosen, self._row_tile)

    def _batch(self, size: int, planned: PlannedStep) -> Batch:
        tokens, positions, blocks, offsets = self._inputs.tensor[:, :size]
        slots = self._cache.slots(blocks, offsets)
        return Batch(tokens, positions, slots, planned.by_window, self._row_tile)

    def _grow(self, max_rows: int) -> Tensor:
        """Run the largest passes once; the buffer of hidden states."""
        rows = whole_tiles(max_rows, self._row_tile)
        zeros = torch.zeros(rows, dtype=torch.int64, device=self._decoder.device)
        with torch.inference_mode():
            planned = self._attention.plan([RowSpan(0, 1, (TRASH_BLOCK,))])
            batch = Batch(zeros, zeros, self._cache.slots(zeros, zeros), planned.by_window, self._row_tile)
            hidden = self._decoder.forward(batch, self._cache.blocks, self._attention)
            self._decoder.head(hidden[: self._most], self._row_tile)
            return torch.zeros_like(hidden[: self._most])
