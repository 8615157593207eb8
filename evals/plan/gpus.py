"""GPUs by name: bandwidth, dense bf16 rate and memory of their data sheets, as far as programs reach them.

Sources, data sheets by NVIDIA (dense rates are half of those given "with sparsity"):

- H200: "NVIDIA H200 Tensor Core GPU", SXM: 141 GB HBM3e, 4.8 TB/s, 989 TFLOPS bf16.
- H100: "NVIDIA H100 Tensor Core GPU", SXM: 80 GB HBM3, 3.35 TB/s, 989 TFLOPS bf16.
- A100: "NVIDIA A100 Tensor Core GPU", SXM 80 GB: HBM2e, 2.039 TB/s, 312 TFLOPS bf16.
- L40S: "NVIDIA L40S": 48 GB GDDR6, 864 GB/s, 362 TFLOPS bf16.
- B200: "NVIDIA DGX B200", an eighth of the system: 180 GB HBM3e, 8 TB/s, 2.25 PFLOPS bf16.

Of the H200, `kernels.bounds.H200` says what copies and products reach: .90 of the bandwidth and .80 of the
rate. The others are taken to reach the same shares. The fixed costs are the host's, of this engine: the
`overhead` rows of `evals/bench/README.md` (1.13 ms for 64 rows, 4.11 ms for 256).
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...engine.errors import UsageError
from ...kernels.bounds import H200
from .machine import Machine


class DataSheet(NamedTuple):
    """What the maker says: bytes and operations per second, bytes of memory."""

    bytes_per_s: float
    flops_per_s: float
    memory_bytes: int


DATA_SHEETS = {
    "H200": DataSheet(4.8e12, 989e12, 141 * 10**9),
    "H100": DataSheet(3.35e12, 989e12, 80 * 10**9),
    "A100": DataSheet(2.039e12, 312e12, 80 * 10**9),
    "L40S": DataSheet(864e9, 362e12, 48 * 10**9),
    "B200": DataSheet(8e12, 2.25e15, 180 * 10**9),
}

BANDWIDTH_REACHED = H200.bytes_per_s / DATA_SHEETS["H200"].bytes_per_s
RATE_REACHED = H200.flops_per_s / DATA_SHEETS["H200"].flops_per_s

_ROWS, _SECONDS = (64, 256), (1.13e-3, 4.11e-3)
HOST_ROW_S = (_SECONDS[1] - _SECONDS[0]) / (_ROWS[1] - _ROWS[0])
HOST_STEP_S = _SECONDS[0] - _ROWS[0] * HOST_ROW_S
"""Host seconds of a drawn token and of a step: the line through the two rows of the benchmark."""


def find_gpu(name: str, *, host: bool = True) -> Machine:
    """The GPU of that name, upper or lower case. `host` False leaves out the host's time. `UsageError` for
    another name."""
    for known, sheet in DATA_SHEETS.items():
        if known.lower() == name.lower():
            return Machine(
                name=known,
                bytes_per_s=sheet.bytes_per_s * BANDWIDTH_REACHED,
                flops_per_s=sheet.flops_per_s * RATE_REACHED,
                memory_bytes=sheet.memory_bytes,
                step_s=HOST_STEP_S if host else 0.0,
                draw_s=HOST_ROW_S if host else 0.0,
            )
    raise UsageError(
        f"--gpu {name}: not in the table; give one of {', '.join(DATA_SHEETS)}, or describe it with --machine"
    )


def gpus() -> Iterator[Machine]:
    """All of the table, without the host's time."""
    return (find_gpu(name, host=False) for name in DATA_SHEETS)
