"""bf16 in the interpreter: wrong as Triton has it, right once corrected.

What Triton does by itself is looked at in a process of its own, for a correction stays. Where one of these
checks fails because Triton has become right, that part of kernels/interpreter.py can go.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from branchwise.kernels.gpu.launch import on_grid
from branchwise.kernels.interpreter import correct_bf16
from support.bf16_probe import PROBES, run_probe

CORRECTED = {"dot": 1e-6, "add": 4e-3, "round": 0.0, "scale": 4e-3}


def errors_without_correction() -> dict[str, float]:
    """The relative error of each probe in a process that corrects nothing."""
    tests = Path(__file__).parents[2]
    code = (
        f"import sys; sys.path.insert(0, {str(tests)!r})\n"
        "from support.bf16_probe import PROBES, run_probe\n"
        "print(*(f'{name}={run_probe(name)}' for name in PROBES))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name: float(error) for name, _, error in (word.partition("=") for word in done.stdout.split())}


def test_the_interpreter_is_wrong_without_the_correction() -> None:
    errors = errors_without_correction()
    assert set(errors) == set(PROBES)
    right = [name for name, error in errors.items() if error <= CORRECTED[name]]
    assert right == [], f"Triton {triton.__version__} is right by itself about {right}"


@pytest.mark.parametrize("name", PROBES)
def test_the_interpreter_is_right_with_the_correction(name: str) -> None:
    correct_bf16()
    assert run_probe(name) <= CORRECTED[name]


@triton.jit
def _compare(left, right, out, count: tl.constexpr):
    place = tl.arange(0, count)
    smaller = tl.load(left + place) < tl.load(right + place)
    tl.store(out + place, smaller.to(tl.int32))


def test_comparisons_are_of_values_not_of_words() -> None:
    left, right = (
        torch.tensor([-1.0, 1.0, -2.0, 0.0]).bfloat16(),
        torch.tensor([1.0, -1.0, -1.0, 0.0]).bfloat16(),
    )
    out = torch.empty(4, dtype=torch.int32)
    on_grid(_compare, 1)(left, right, out, count=4)
    assert out.tolist() == [1, 0, 1, 0]


@triton.jit
def _count(length, out):
    total = 0
    for index in range(tl.load(length)):
        total += index
    tl.store(out, total)


def test_a_range_may_end_at_a_loaded_value() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    on_grid(_count, 1)(torch.tensor([5], dtype=torch.int32), out)
    assert out.item() == 10
