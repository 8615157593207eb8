"""A product whose loads are neither asynchronous nor wide, and which is too small for warp groups."""

import triton
import triton.language as tl
from branchwise.kernels.gpu.build import Build, Ceiling


@triton.jit
def product(x, y, out, stride, steps, side: tl.constexpr):
    row, column = tl.arange(0, side)[:, None], tl.arange(0, side)[None, :]
    total = tl.zeros([side, side], tl.float32)
    for step in range(steps):
        left = tl.load(x + row * stride + step * side + column)
        total = tl.dot(left, tl.load(y + row * stride + step * side + column), total)
    tl.store(out + row * side + column, total)


def builds() -> list[Build]:
    return [
        Build(
            name="slow product",
            kernel=product,
            signature={"x": "*bf16", "y": "*bf16", "out": "*fp32", "stride": "i32", "steps": "i32"},
            constants={"side": 16},
            ceilings={90: Ceiling(registers=255, shared_bytes=2**18)},
            wants_async=True,
            wants_hgmma=True,
        )
    ]
