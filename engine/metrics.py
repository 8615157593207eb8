"""The engine's metrics, for who asks: an engine that nobody watches does not load what makes them."""

from functools import cached_property
from typing import TYPE_CHECKING

from .sched.scheduler import Scheduler
from .timing import Timings
from .watchdog import Watchdog

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class EngineMetrics:
    """One registry per engine: `registry` for a server that has one, `render` for the text."""

    def __init__(self, scheduler: Scheduler, timings: Timings, watchdog: Watchdog) -> None:
        self._sources = scheduler, timings, watchdog

    @cached_property
    def registry(self) -> "CollectorRegistry":
        from prometheus_client import CollectorRegistry

        from .collector import EngineCollector

        registry = CollectorRegistry()
        registry.register(EngineCollector(*self._sources))
        return registry

    def render(self) -> str:
        """All metrics in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry).decode()
