"""Triton kernels. On the CPU they run in Triton's interpreter (TRITON_INTERPRET=1), whose bf16 is corrected
before the first of them is made."""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    from ..interpreter import correct_bf16

    correct_bf16()
