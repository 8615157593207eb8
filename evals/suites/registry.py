"""Suites by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ...engine.errors import UsageError
from ...verifiers.nearest import unknown
from . import gym
from .base import Suite
from .datasets import DATA_SETS, data_suite
from .game24 import Game24Suite
from .jsonl import jsonl_suite
from .programs import PROGRAM_SETS, program_suite
from .reference import ArithmeticSuite, CountdownSuite

JSONL = "jsonl:"

_EMBEDDED: dict[str, Callable[[], Suite]] = {
    "countdown": lambda: CountdownSuite("countdown", (3,)),
    "countdown4": lambda: CountdownSuite("countdown4", (4,)),
    "arithmetic": lambda: ArithmeticSuite("arithmetic", (4, 5, 6)),
}


def suite_names() -> tuple[str, ...]:
    """The names that `open_suite` takes; TASK and PATH stand for themselves."""
    return (*_EMBEDDED, *DATA_SETS, "game24", *PROGRAM_SETS, f"{gym.PREFIX}TASK", f"{JSONL}PATH")


def open_suite(
    name: str,
    data: Path | None = None,
    mapping: Mapping[str, str] | None = None,
    *,
    allow_unsandboxed: bool = False,
) -> Suite:
    """The suite of that name.

    `data` is where a public data set lies (its file, its folder, or the folder of all sets; BRANCHWISE_DATA
    where None, and else the Hub). `mapping` gives the fields of a JSONL file: question, gold, id, level,
    options; and type, the type of its golds. `allow_unsandboxed` lets generated programs run as the user
    where the system has no sandbox.

    Raises `UsageError` for a name that is not known, `CapabilityError` for programs without a sandbox.
    """
    if mapping and not name.startswith(JSONL):
        raise UsageError(f"suite {name!r}: takes no field map; only {JSONL}PATH does")
    if data is not None and (name in _EMBEDDED or name.startswith((JSONL, gym.PREFIX))):
        raise UsageError(f"suite {name!r}: reads no --data; leave {str(data)!r} out")
    if name.startswith(JSONL):
        return jsonl_suite(name, Path(name.removeprefix(JSONL)), mapping)
    if name.startswith(gym.PREFIX):
        return gym.gym_suite(name)
    if name in _EMBEDDED:
        return _EMBEDDED[name]()
    if name in DATA_SETS:
        return data_suite(name, data)
    if name == "game24":
        return Game24Suite(name, data)
    if name in PROGRAM_SETS:
        return program_suite(name, data, allow_unsandboxed=allow_unsandboxed)
    raise UsageError(unknown("suite", name, suite_names()))
