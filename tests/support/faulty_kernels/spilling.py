"""A kernel that keeps more than a thread has registers for, takes more than it may, or neither, by its
size."""

import triton
import triton.language as tl
from branchwise.kernels.gpu.build import Build, Ceiling

PLENTY = Ceiling(registers=255, shared_bytes=2**18)


@triton.jit
def hold(x, out, block: tl.constexpr):
    place = tl.arange(0, block)
    value = tl.load(x + place)
    total = value
    for step in range(4):
        total += tl.load(x + step * block + place) * value
    tl.store(out + place, total + value)


def _build(name: str, block: int, ceiling: Ceiling) -> Build:
    return Build(
        name=name,
        kernel=hold,
        signature={"x": "*fp32", "out": "*fp32"},
        constants={"block": block},
        ceilings={80: ceiling, 90: ceiling},
        warps=1,
        stages=1,
    )


def builds() -> list[Build]:
    return [
        _build("spills", 8192, PLENTY),
        _build("over", 512, Ceiling(registers=16, shared_bytes=0)),
        _build("sound", 512, PLENTY),
    ]
