"""Which of several GPUs the calling thread computes on."""

from contextlib import AbstractContextManager, nullcontext

import torch


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Inside, a GPU is the thread's current one: Triton launches kernels there, and events and streams that
    name no device are of it. Elsewhere nothing changes."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
