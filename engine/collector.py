"""The engine's figures for Prometheus: counted as plain integers, made into metrics when somebody asks."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .histogram import Histogram
from .sched.counters import Counters
from .sched.memory import ModelMemory
from .sched.scheduler import Scheduler
from .timing import Timings
from .watchdog import Watchdog

ROW_KINDS = ("prefill", "decode", "score", "recomputed", "drafted", "failed")
"""Kinds of rows; each row is of one kind, so their sum is the rows scheduled."""

COUNTED = {
    "steps": "Steps committed.",
    "failed_steps": "Steps of one model that raised.",
    "retried_steps": "Steps of one model tried again with fewer rows, because memory ran out.",
    "scheduled_rows": "Rows of all executed steps.",
    "generated_tokens": "Tokens sampled and committed.",
    "accepted_tokens": "Drafted tokens that stayed.",
    "wasted_rows": "Rows of drafts that did not stay.",
    "cached_tokens": "Positions of new work that the prefix cache held.",
    "recompute_hit_tokens": "Positions lost to a preemption or a parking that the prefix cache still held.",
    "deferred_for_prefix": "Times a request waited a step for a block that another was computing.",
    "parked": "Idle sequences whose blocks were taken.",
    "preemptions": "Running sequences whose blocks were taken.",
    "copied_blocks": "Blocks copied because a shared tail was written to.",
    "refused_requests": "Requests refused because the queue of their tenant, or of all, was full.",
    "spoiled_requests": "Requests ended by values that were not finite.",
}
"""Figures of `Counters` that are metrics of their own, with their help."""


class EngineCollector(Collector):
    """No metric names a tenant or namespace: what one caller finds in the cache is told to that caller
    alone."""

    def __init__(self, scheduler: Scheduler, timings: Timings, watchdog: Watchdog) -> None:
        self._scheduler = scheduler
        self._timings = timings
        self._watchdog = watchdog

    def collect(self) -> Iterable[Metric]:
        """The metrics as they stand. Any thread may ask."""
        yield from counter_metrics(self._scheduler.counters)
        yield from pool_metrics(self._scheduler.memories)
        board, timings = self._scheduler.board, self._timings
        yield gauge("requests_waiting", "Requests in the queues.", len(board.waiting))
        yield gauge("requests_running", "Requests with a place in the next steps.", len(board.running))
        yield gauge("tokens_per_second", "Throughput of the last ten seconds.", timings.tokens_per_second())
        yield counter("stuck_steps", "Steps that the watchdog reported.", self._watchdog.reports)
        yield histogram("queue_wait_seconds", "From submission to start.", timings.queue_wait)
        yield histogram("first_token_seconds", "From submission to the first token.", timings.first_token)
        yield histogram("inter_token_seconds", "Between two tokens of a request.", timings.between_tokens)
        yield histogram("step_seconds", "Execution and commit of a step.", timings.step)


def counter_metrics(counters: Counters) -> Iterable[Metric]:
    rows = CounterMetricFamily("branchwise_rows", "Rows computed, by why.", labels=["kind"])
    for kind in ROW_KINDS:
        rows.add_metric([kind], getattr(counters, f"{kind}_rows"))
    yield rows
    for name, text in COUNTED.items():
        yield counter(name, text, getattr(counters, name))


def pool_metrics(memories: Mapping[str, ModelMemory]) -> Iterable[Metric]:
    """Blocks by state and evictions, per model."""
    blocks = GaugeMetricFamily("branchwise_blocks", "KV blocks, by state.", labels=["model", "state"])
    evictions = CounterMetricFamily("branchwise_prefix_evictions", "Cached blocks evicted.", labels=["model"])
    for name, memory in memories.items():
        pool = memory.pool
        for state in ("free", "cached", "owned"):
            blocks.add_metric([name, state], getattr(pool, state))
        evictions.add_metric([name], pool.evictions)
    yield blocks
    yield evictions


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"branchwise_{name}", text, value=value)


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"branchwise_{name}", text, value=value)


def histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    return HistogramMetricFamily(
        f"branchwise_{name}", text, buckets=found.cumulative(), sum_value=found.total
    )
