"""Small kernels in bf16, and how far from float64 the interpreter of this process is on each."""

from typing import Any

import torch
import triton
import triton.language as tl

from .closeness import relative_error

PROBES = ("dot", "add", "round", "scale")
_SIDE = 32


@triton.jit
def _dot(left, right, out, side: tl.constexpr):
    row, column = tl.arange(0, side)[:, None], tl.arange(0, side)[None, :]
    place = row * side + column
    tl.store(out + place, tl.dot(tl.load(left + place), tl.load(right + place)))


@triton.jit
def _add(left, right, out, side: tl.constexpr):
    place = tl.arange(0, side * side)
    tl.store(out + place, tl.load(left + place) + tl.load(right + place))


@triton.jit
def _round(left, right, out, side: tl.constexpr):
    place = tl.arange(0, side * side)
    tl.store(out + place, tl.load(left + place).to(tl.bfloat16))


@triton.jit
def _scale(left, right, out, side: tl.constexpr):
    place = tl.arange(0, side * side)
    tl.store(out + place, -tl.load(left + place) * tl.load(right + place))


def _run(kernel: Any, *tensors: torch.Tensor) -> None:
    kernel[(1,)](*tensors, side=_SIDE)


def run_probe(name: str) -> float:
    """The relative error of the probe `name` of PROBES; for "round", against torch's own rounding."""
    torch.manual_seed(0)
    left, right = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
    if name == "round":
        out = torch.empty(_SIDE, _SIDE, dtype=torch.bfloat16)
        _run(_round, left, right, out)
        return relative_error(out, left.bfloat16())
    left, right = left.bfloat16(), right.bfloat16()
    wide, other = left.double(), right.double()
    kernel, exact = {
        "dot": (_dot, wide @ other),
        "add": (_add, wide + other),
        "scale": (_scale, -wide * other),
    }[name]
    out = torch.empty(_SIDE, _SIDE, dtype=torch.float32 if name == "dot" else torch.bfloat16)
    _run(kernel, left, right, out)
    error = relative_error(out, exact)
    return error if error == error else float("inf")
