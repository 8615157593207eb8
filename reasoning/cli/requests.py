"""The checked arguments of a run: what to open, what to ask for, how to print."""

from pathlib import Path

import msgspec

from ...strategies.base import Strategy
from ..budget import Budget


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword arguments of `Reasoner.open`."""

    model: str
    draft: str | None
    prm: str | None
    adapter: str | None
    device: str
    dtype: str
    threads: int | None
    kv_memory: int | None
    max_model_len: int | None


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword arguments of `Reasoner.solve` that all problems of a run share."""

    strategy: Strategy
    budget: Budget
    verifier: str | None
    oracle: bool
    seed: int | None
    system: str | None
    think: bool | None
    temperature: float | None
    max_tokens: int | None
    step: str | None
    speculate: str | None


class Printing(msgspec.Struct, frozen=True, kw_only=True):
    """`graph` is where the search graph goes; `jobs` how many problems of a file run at a time."""

    json: bool
    graph: Path | None
    jobs: int
