"""Checks of arguments that need no model: what they refuse is refused before anything is loaded."""

import re
from importlib.metadata import entry_points

from ...engine.errors import UsageError
from ..source import find_source
from .nearest import nearest

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_DTYPES = ("auto", "float32", "bfloat16", "float16")


def checked_source(name: str) -> str:
    """`name`, where it leads to a model."""
    find_source(name)
    return name


def checked_verifier(name: str | None) -> str | None:
    known = [point.name for point in entry_points(group="branchwise.verifiers")]
    if name is not None and name not in known:
        raise UsageError(f"verifier {name!r}: no such verifier; {nearest(name, known)}")
    return name


def checked_device(name: str) -> str:
    if _DEVICE.fullmatch(name) is None:
        raise UsageError(f"--device {name}: no such device; give auto, cpu, cuda or cuda:N")
    return name


def checked_dtype(name: str) -> str:
    if name not in _DTYPES:
        raise UsageError(f"--dtype {name}: no such type; {nearest(name, _DTYPES)}")
    return name


def checked_step(step: str | None) -> str | None:
    if step is None or (step.startswith("mark:") and len(step) > len("mark:")):
        return step
    if re.fullmatch(r"tokens:[1-9]\d*", step) is None:
        raise UsageError(f"--step {step}: give mark:TEXT, or tokens:N with N above 0")
    return step
