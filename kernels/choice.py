"""Which family of kernels computes on a device."""

import enum
import functools
import importlib.util
import os

import structlog
import torch

log = structlog.get_logger(__name__)

SWITCH = "BRANCHWISE_KERNELS"
"""Environment variable: torch or triton; unset, the device decides."""


class ChoiceError(RuntimeError):
    """The switch asks for what does not exist, or not here; the message is one line."""


class Family(enum.Enum):
    """Own operators for the CPU, torch's, or own Triton kernels."""

    NATIVE = enum.auto()
    TORCH = enum.auto()
    TRITON = enum.auto()


def family(device: torch.device) -> Family:
    """The kernels for `device`. Raises `ChoiceError`.

    Native operators serve the CPU and Triton kernels the GPU. Triton serves the CPU only where it was asked
    for and its interpreter is on, for tests.
    """
    asked = os.environ.get(SWITCH, "")
    if asked not in ("", "torch", "triton"):
        raise ChoiceError(f"{SWITCH} is {asked!r}: set it to torch or triton, or leave it out")
    if asked == "torch":
        return Family.TORCH
    if device.type == "cpu":
        if not asked:
            return Family.NATIVE
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise ChoiceError(
                f"{SWITCH}=triton needs a GPU, or TRITON_INTERPRET=1 for Triton's interpreter; the device is "
                f"{device}"
            )
    if _has_triton():
        return Family.TRITON
    if asked:
        raise ChoiceError(f"{SWITCH}=triton, and Triton is not installed: pip install 'branchwise[gpu]'")
    return Family.TORCH


@functools.cache
def _has_triton() -> bool:
    """Asked once per process: the answer is worth one line."""
    found = importlib.util.find_spec("triton") is not None
    if not found:
        log.warning("triton is not installed, torch computes instead: slower")
    return found
