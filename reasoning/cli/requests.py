"""The checked arguments of a run: what to open, what to ask for, how to print."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ...strategies.base import Strategy
from ..budget import Budget


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword arguments of `Reasoner.open` that name models and the machine; `kv_memory` in bytes."""

    model: str = "reference"
    draft: str | None = None
    prm: str | None = None
    judge: str | None = None
    adapter: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: Annotated[int, Meta(ge=1)] | None = None
    kv_memory: Annotated[int, Meta(ge=1)] | None = None
    max_model_len: Annotated[int, Meta(ge=1)] | None = None


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
