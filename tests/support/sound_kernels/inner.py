"""A function that only other modules' kernels call."""

import triton


@triton.jit
def twice(value):
    return value + value
