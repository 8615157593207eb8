"""How many CPU threads a model's steps are fastest with: measured, since cores that other programs use, or
that are halves of one, are not worth what their number says."""

import time

import structlog
import torch

from ..protocol import SeqId
from ..sched.plan import ModelPlan, Span
from .runner import Runner

log = structlog.get_logger(__name__)

ROWS = 16
SMALL_MODEL_BYTES = 64 << 20
"""Weights that a core's cache nearly holds: a second thread costs more than it brings."""

WORTH = 0.95
"""More threads must bring a step below this share of its time."""

_RUNS = 3
_LONG_S = 0.5


def fastest_threads(runner: Runner, weights_bytes: int) -> int:
    """Up to the present number. Not measured where the number could show in a result."""
    most = torch.get_num_threads()
    if not runner.threads_leave_bits:
        return 1 if weights_bytes <= SMALL_MODEL_BYTES else most
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count < most] + [most]
    best, seconds = 1, _step_s(runner, 1) if most > 1 else 0.0
    for count in counts[1:]:
        taken = _step_s(runner, count)
        if taken < WORTH * seconds:
            best, seconds = count, taken
    torch.set_num_threads(most)
    log.info("cpu threads", threads=best, of=most, step_ms=round(seconds * 1e3, 2))
    return best


def _step_s(runner: Runner, threads: int) -> float:
    """The shortest of some steps of a few rows, whose keys and values go nowhere."""
    torch.set_num_threads(threads)
    spans = tuple(Span(SeqId(row), 0, (0,), (1,), 1) for row in range(1, ROWS + 1))
    plan = ModelPlan(runner.model.info.name, spans)
    shortest = float("inf")
    for _ in range(1 + _RUNS):
        began = time.perf_counter()
        runner.execute(plan)
        shortest = min(shortest, time.perf_counter() - began)
        if shortest > _LONG_S:
            break
    return shortest
