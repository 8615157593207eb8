"""How much memory steps take beside weights and KV: measured by running the largest ones."""

from typing import Protocol

import torch

from ..models.open import LoadedModel
from ..protocol import SeqId
from ..sampling.params import SamplingParams
from ..sched.plan import ModelPlan, Sample, Span
from .cache import bytes_per_block
from .recorded import SIZES
from .runner import Runner

_FILTERED = SamplingParams(temperature=1.0, top_k=50, top_p=0.9)


class Gauge(Protocol):
    """Watches a device's memory."""

    def free_bytes(self) -> int:
        """What nobody holds now."""
        ...

    def start(self) -> None:
        """Forget the peak."""
        ...

    def peak_bytes(self) -> int:
        """The most that was allocated at once since `start`, beyond what is now."""
        ...


class CudaGauge:
    """Implements `Gauge` for torch's allocator on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free_bytes(self) -> int:
        """See `Gauge.free_bytes`; what the allocator keeps for itself is given back first."""
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self._device)
        return free

    def start(self) -> None:
        """See `Gauge.start`."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        """See `Gauge.peak_bytes`."""
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - torch.cuda.memory_allocated(self._device)


def step_bytes(
    model: LoadedModel, gauge: Gauge, *, block_size: int, max_rows: int, deterministic: bool
) -> int:
    """Memory of a runner and its steps of up to `max_rows` rows, without weights and KV, and without the work
    memory that the model has from these steps on."""
    length = min(max_rows, model.info.max_model_len)
    blocks = -(-length // block_size) + 1
    gauge.start()
    _run_largest(
        Runner(model, blocks, block_size=block_size, deterministic=deterministic, max_rows=max_rows),
        length,
        max_rows,
    )
    kv_bytes = blocks * bytes_per_block(model.decoder.shape, block_size, model.decoder.dtype)
    return max(0, gauge.peak_bytes() - kv_bytes)


def _run_largest(runner: Runner, length: int, max_rows: int) -> None:
    """A prefill that is scored at each row, and as many draws as there are in a recorded pass."""
    model, blocks = runner.model, runner.cache.num_blocks
    for spans in (_prefill(model, max_rows, length, blocks), _draws(model, min(max_rows, SIZES[-1]))):
        runner.execute(ModelPlan(model.info.name, spans))


def _prefill(model: LoadedModel, rows: int, length: int, blocks: int) -> tuple[Span, ...]:
    """Prompts of full length, all in the same blocks: what they compute is thrown away."""
    table = tuple(range(1, blocks))
    spans = []
    for index, first in enumerate(range(0, rows, length)):
        places = tuple(range(min(length, rows - first)))
        tokens, seq = (0,) * len(places), SeqId(index + 1)
        if model.info.head == "reward":
            spans.append(Span(seq, 0, tokens, table, 0, reward_at=places))
        else:
            spans.append(Span(seq, 0, tokens, table, 0, logprob_at=places, targets=tokens))
    return tuple(spans)


def _draws(model: LoadedModel, rows: int) -> tuple[Span, ...]:
    """Rows whose keys and values go nowhere, with a token drawn from each."""
    spans = []
    for index in range(rows):
        seq = SeqId(index + 1)
        samples = () if model.info.head == "reward" else (Sample(seq, index, 1, _FILTERED),)
        spans.append(Span(seq, 0, (0,), (1,), 1, samples=samples))
    return tuple(spans)
