"""Attention by work items: the kernels of a GPU, or the same items in torch.

A step's plan is written into host memory and copied to device memory that was allocated once. What the
kernels are launched with does not change from step to step, save what `PlannedStep.form` names.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .attention import HeadShape
from .interface import PlannedStep
from .plain import tree_attention as plain
from .plan import WorkPlanner
from .tables import RowSpan
from .work import NARROW, WIDE, Capacity, WorkPlan, memory_words, places


class PlannedWork(NamedTuple):
    """A step's plan on the host, and its arrays on the device by name."""

    work: WorkPlan
    arrays: dict[str, Tensor]


class ItemAttention:
    """Implements `Attention`. Rows are packed in the order of their spans; spans may be `TreeSpan`s.

    `windows` are the sliding windows of the model's layers, None for full attention. `programs` run on the
    device at once (its multiprocessors times what each holds). With `triton` the kernels of `kernels/gpu`
    compute, with `tma` by descriptors, else torch does. `chunk` keys switch the deterministic mode on, whose
    bits only the kernels keep. A plan is valid until the next one is made.
    """

    grouped = False

    def __init__(
        self,
        shape: HeadShape,
        windows: Iterable[int | None],
        device: torch.device,
        capacity: Capacity,
        *,
        programs: int = 1,
        chunk: int | None = None,
        triton: bool = True,
        tma: bool = False,
    ) -> None:
        self._shape = shape
        self._triton = triton
        self._tma = tma
        # A descriptor loads whole pages, with what lies behind the last key.
        self.masks_loads = not (triton and tma)
        self._programs = max(1, programs // shape.kv_heads)
        self._capacity = capacity
        self._memories = {window: _PlanMemory(capacity, device) for window in windows}
        self._planners = {
            window: WorkPlanner(
                shape.block_size,
                shape.group,
                shape.kv_heads,
                capacity=capacity,
                programs=programs,
                window=window,
                chunk=chunk,
                memory=memory.host.numpy(),
            )
            for window, memory in self._memories.items()
        }
        heads = shape.kv_heads * shape.group
        slots = capacity.slots if triton else 0
        self._partial = torch.empty(slots, heads, shape.head_dim, device=device)
        self._partial_lse = torch.empty(slots, heads, device=device)

    def plan(self, spans: Sequence[RowSpan]) -> PlannedStep:
        """See `Attention.plan`. Raises ValueError where the step exceeds the capacity."""
        by_window: dict[int | None, PlannedWork] = {}
        form: list[tuple[object, ...]] = []
        for window, planner in self._planners.items():
            memory = self._memories[window]
            memory.await_copy()
            work = planner.plan(spans)
            if self._triton:
                memory.copy(work.arrays.used_words(work.pages))
            by_window[window] = PlannedWork(work, memory.arrays)
            form.append((window, work.items[WIDE] > 0, *work.flags.values()))
        return PlannedStep(list(range(len(spans))), by_window, tuple(form))

    def run(self, query: Tensor, kv: Tensor, plan: PlannedWork, out: Tensor) -> None:
        """See `Attention.run`. Rows of `query` behind the plan's, which pad a captured step, get 0."""
        if query.shape[0] > self._capacity.rows:
            raise ValueError(f"{query.shape[0]} rows exceed the capacity of {self._capacity.rows}")
        if self._triton:
            self._launch(query, kv, plan, out)
            return
        scale, softcap = self._shape.scale, self._shape.softcap
        partials = plain.attend_items(query, kv, plan.work, scale=scale, softcap=softcap)
        out[: plan.work.rows] = plain.merge_states(partials, plan.work).flatten(1)
        out[plan.work.rows : query.shape[0]] = 0

    def store(self, rows: Tensor, slots: Tensor, kv: Tensor) -> None:
        """See `Attention.store`."""
        self._shape.store(rows, slots, kv)

    def _launch(self, query: Tensor, kv: Tensor, plan: PlannedWork, out: Tensor) -> None:
        from .gpu import merge_states, tree_attention

        work, arrays = plan
        for kind in (NARROW, WIDE):
            if kind == WIDE and not work.items[WIDE]:
                continue
            tree_attention.launch(
                query,
                kv,
                self._partial,
                self._partial_lse,
                arrays,
                kind,
                work.tiling,
                self._programs,
                scale=self._shape.scale,
                softcap=self._shape.softcap,
                tma=self._tma,
                **work.flags,
            )
        rows = query.shape[0]
        merge_states.launch(
            self._partial, self._partial_lse, arrays["row_ptr"], arrays["row_slots"], out, rows
        )


class _PlanMemory:
    """A plan's memory on the host, pinned for a CUDA device, and on the device.

    The host's is written again only when the last copy of it is through.
    """

    def __init__(self, capacity: Capacity, device: torch.device) -> None:
        words = memory_words(capacity)
        cuda = device.type == "cuda"
        self.host = torch.zeros(words, dtype=torch.int32, pin_memory=cuda)
        self._device = torch.zeros(words, dtype=torch.int32, device=device)
        self._copied = torch.cuda.Event() if cuda else None
        self.arrays: dict[str, Tensor] = {}
        for name, place in places(capacity).items():
            count = place.words
            for length in place.shape:
                count *= length
            part = self._device[place.first : place.first + count]
            self.arrays[name] = (part.view(torch.int64) if place.words == 2 else part).view(place.shape)

    def await_copy(self) -> None:
        """Wait until the host's memory may be written."""
        if self._copied is not None:
            self._copied.synchronize()

    def copy(self, words: int) -> None:
        """Copy the first `words` words to the device, in the order of the current stream."""
        self._device[:words].copy_(self.host[:words], non_blocking=True)
        if self._copied is not None:
            self._copied.record()
