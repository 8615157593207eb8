"""Checks of arguments that need no model: what they refuse is refused before anything is loaded."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ...engine.drafting.params import parse_speculate
from ...engine.errors import UsageError
from ...strategies.base import Strategy
from ...strategies.grammar import parse_strategy, with_settings
from ...verifiers.problem import Problem
from ...verifiers.registry import parse_verifier
from ..prompting import read_problem
from ..source import find_source
from ..stepping import parse_step
from .nearest import hint
from .quantity import parse_settings
from .requests import Opening, Searching

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_DTYPES = ("auto", "float32", "bfloat16")


def checked_strategy(text: str, settings: Sequence[str]) -> Strategy:
    """The strategy that `--strategy` and the `--set` options name together."""
    return with_settings(parse_strategy(text), parse_settings(settings))


def check_sources(*names: str | None) -> None:
    """Refuse a model that is named and leads nowhere."""
    for name in names:
        if name is not None:
            find_source(name)


def checked_opening(opening: Opening) -> Opening:
    """`opening`, where its models can be found and its machine can be."""
    check_sources(opening.model, opening.draft, opening.prm, opening.judge)
    checked_device(opening.device)
    checked_dtype(opening.dtype)
    return opening


def checked_searching(searching: Searching) -> dict[str, Any]:
    """The fields of `searching`, in their one spelling, where they are of the form that `Reasoner.solve`
    reads."""
    return msgspec.structs.asdict(searching) | {
        "verifier": checked_verifier(searching.verifier),
        "step": checked_step(searching.step),
        "speculate": checked_speculate(searching.speculate),
    }


def checked_verifier(text: str | None) -> str | None:
    """`text` in its one spelling, where it names a verifier with parameters that it takes."""
    return None if text is None else str(parse_verifier(text))


def checked_device(name: str) -> str:
    if _DEVICE.fullmatch(name) is None:
        raise UsageError(f"--device {name}: no such device; give auto, cpu, cuda or cuda:N")
    return name


def checked_dtype(name: str) -> str:
    if name not in _DTYPES:
        raise UsageError(f"--dtype {name}: no such type; {hint(name, _DTYPES)}")
    return name


def checked_step(step: str | None) -> str | None:
    """`step`, where it is of the form that `Reasoner.solve` reads."""
    parse_step(step)
    return step


def checked_speculate(text: str | None) -> str | None:
    """`text`, where it is of the form that `Reasoner.solve` reads."""
    if text is not None:
        parse_speculate(text)
    return text


def check_readable(problem: str, model: str) -> None:
    """Refuse a problem that a family which solves only its own tasks cannot read."""
    read_problem(Problem(text=problem), find_source(model))
