"""Builds that cannot be: of arguments that the kernel lacks, of no architecture, and of one name."""

import triton
import triton.language as tl
from branchwise.kernels.gpu.build import Build, Ceiling

SOME = {90: Ceiling(registers=255, shared_bytes=2**18)}


@triton.jit
def nothing(x):
    tl.store(x, 0)


def builds() -> list[Build]:
    return [
        Build(name="strange", kernel=nothing, signature={"y": "*i32"}, constants={}, ceilings=SOME),
        Build(name="nowhere", kernel=nothing, signature={"x": "*i32"}, constants={}, ceilings={}),
        Build(name="twin", kernel=nothing, signature={"x": "*i32"}, constants={}, ceilings=SOME),
        Build(name="twin", kernel=nothing, signature={"x": "*i32"}, constants={}, ceilings=SOME),
    ]
