"""The machine that a benchmark ran on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import msgspec

CPU_INFO = Path("/proc/cpuinfo")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """`cores` are those that this process may use; `versions` are of what computes and of the package."""

    cpu: str
    cores: int
    system: str
    versions: dict[str, str]


def this_machine() -> Machine:
    """The machine at hand."""
    names = ("branchwise", "torch")
    return Machine(
        cpu=cpu_model(),
        cores=core_count(),
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        versions={name: version(name) for name in names},
    )


def core_count() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's own name for itself."""
    if CPU_INFO.is_file():
        for line in CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
