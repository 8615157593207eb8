"""What a compiled kernel takes and does, read from the tools that come with Triton (cuobjdump, nvdisasm)."""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_INSTRUCTION = re.compile(r"^\s+(?:/\*[0-9a-f]+\*/)?\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", re.MULTILINE)

_FAMILIES = {
    "warp_group_products": r"HGMMA|QGMMA|UTC\w*MMA",
    "warp_products": r"HMMA|IMMA|QMMA|OMMA|DMMA",
    "bulk_loads": r"UTMALDG|UBLKCP",
    "async_loads": r"LDGSTS",
    "wide_async_loads": r"LDGSTS\S*\.128",
    "loads": r"LDG\.",
    "wide_loads": r"LDG\.\S*\b128",
    "local_loads": r"LDL\b",
    "local_stores": r"STL\b",
}

_REGISTERS = 65536
_REGISTER_UNIT = 256
_WARPS = 64
_PROGRAMS = 32
_RESERVED_SHARED = 1024
_SHARED = {80: 167936, 90: 233472, 100: 233472}


class MachineCode(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel built for one GPU: registers per thread; `stack_bytes` and `local_bytes` per thread, which
    are 0 without spills; shared memory per program; and how many instructions of each family there are."""

    registers: int
    stack_bytes: int
    local_bytes: int
    shared_bytes: int
    warps: int
    instructions: int
    warp_group_products: int = 0
    warp_products: int = 0
    bulk_loads: int = 0
    async_loads: int = 0
    wide_async_loads: int = 0
    loads: int = 0
    wide_loads: int = 0
    local_loads: int = 0
    local_stores: int = 0

    @property
    def spills(self) -> bool:
        return bool(self.stack_bytes or self.local_bytes or self.local_loads or self.local_stores)

    def programs(self, capability: int) -> int:
        """Programs that a multiprocessor of `capability` holds at once."""
        per_warp = -(-self.registers * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
        by_shared = _SHARED[capability] // (self.shared_bytes + _RESERVED_SHARED)
        return min(_REGISTERS // (per_warp * self.warps), by_shared, _WARPS // self.warps, _PROGRAMS)


def parse_usage(text: str) -> dict[str, int]:
    """Registers, stack, shared and local bytes from the output of `cuobjdump --dump-resource-usage` of one
    kernel."""
    found = _USAGE.search(text)
    if found is None:
        raise ValueError("cuobjdump named no resource usage")
    names = ("registers", "stack_bytes", "shared_bytes", "local_bytes")
    return dict(zip(names, map(int, found.groups()), strict=True))


def count_instructions(disassembly: str) -> dict[str, int]:
    """Instructions of each family, and all `instructions`, in the output of `nvdisasm -c`."""
    names: Mapping[str, int] = Counter(_INSTRUCTION.findall(disassembly))
    counts = {
        family: sum(count for name, count in names.items() if re.match(pattern, name))
        for family, pattern in _FAMILIES.items()
    }
    return {**counts, "instructions": sum(names.values())}


def read_machine_code(cubin: Path, shared_bytes: int, warps: int, tools: Path) -> MachineCode:
    """What is in the file `cubin`, by the programs in the folder `tools`. `shared_bytes` is what a launch
    asks for: the file does not name it."""
    usage = parse_usage(_output(tools / "cuobjdump", "--dump-resource-usage", cubin))
    counts = count_instructions(_output(tools / "nvdisasm", "-c", cubin))
    return MachineCode(**{**usage, **counts, "shared_bytes": shared_bytes, "warps": warps})


def _output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
