"""Plans against runs: how far `branchwise plan` is from what the engine then takes on this machine."""

import time
from collections.abc import Iterator
from importlib.metadata import version

import msgspec

from ..plan.comparison import CASES, POLICY, Compared, compare
from ..plan.measure import measure_machine
from .arena import torch_threads
from .result import OURS, Result, Work, make_result

MEMORY_BYTES = 1 << 33


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of `plan.comparison`, each planned for this machine as it was just measured, then run. With
    `cpu_time` the clock is the processor's time of this process, which other load hardly moves; it means
    the same only on one thread."""

    repeats: int = 3
    threads: int = 1
    cpu_time: bool = False
    dtype: str = "float32"

    def measure(self) -> Iterator[Result]:
        """Seconds planned and taken, and the one per second of the other; of the runs the median."""
        clock = time.process_time if self.cpu_time else time.perf_counter
        with torch_threads(self.threads):
            for case in CASES:
                # Each time anew: the speed of a machine that others share drifts within a minute.
                machine = measure_machine(POLICY, dtype=self.dtype, memory_bytes=MEMORY_BYTES, clock=clock)
                yield self._result(
                    compare(case, machine, dtype=self.dtype, repeats=self.repeats, clock=clock)
                )

    def _result(self, found: Compared) -> Result:
        work = Work(
            bench="plan",
            subject=found.name,
            model="random",
            dtype=self.dtype,
            deterministic=False,
            threads=self.threads,
            sizes={"cpu_time": int(self.cpu_time)},
            figure="seconds",
        )
        figures = {
            "seconds": found.run.seconds,
            "planned_seconds": found.plan.seconds,
            "planned_per_second": found.ratio,
            "tokens": float(found.run.tokens),
            "kv_unshared_peak_tokens": float(found.run.kv_unshared_positions),
            "planned_kv_unshared_peak_tokens": float(found.plan.kv_unshared_positions),
        }
        return make_result(work, {OURS: [figures]}, {OURS: f"branchwise {version('branchwise')}"})
