"""A kernel that no build compiles."""

import triton


@triton.jit
def forgotten(x):
    pass
