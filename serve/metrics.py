"""The server's own figures for Prometheus, beside the engine's."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..engine.protocol import Backend
from .line import Line

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class ServerMetrics:
    """Counts requests; renders everything in Prometheus' text format. No metric names a key."""

    def __init__(self, line: Line, backend: Backend) -> None:
        self._registry = CollectorRegistry()
        self._backend = backend
        ProcessCollector(registry=self._registry)
        self._registry.register(_LineCollector(line))
        self.requests = Counter(
            "branchwise_http_requests", "Requests answered.", ["path", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "branchwise_http_seconds",
            "From the request to the end of its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.tokens = Counter(
            "branchwise_http_tokens", "Tokens spent by finished searches.", registry=self._registry
        )

    def render(self) -> str:
        engine = getattr(self._backend, "metrics", None)
        return generate_latest(self._registry).decode() + (engine.render() if engine is not None else "")


class _LineCollector(Collector):
    def __init__(self, line: Line) -> None:
        self._line = line

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "branchwise_searches_running", "Requests that search.", value=self._line.running
        )
        yield GaugeMetricFamily("branchwise_searches_waiting", "Requests in line.", value=self._line.waiting)
        yield CounterMetricFamily(
            "branchwise_searches_refused", "Requests refused by a full line.", value=self._line.refused
        )
