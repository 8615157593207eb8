"""Models that are open, and the reasoners that share them."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack

import anyio
import msgspec
import structlog

from ..engine.errors import UsageError
from ..engine.protocol import Backend, ModelInfo
from .settle import Settler
from .source import ModelSource, find_source

_OPTIONS = {"policy": "model"}
"""What names the model of a role, where it is not the role itself."""


class OpenOptions(TypedDict, total=False):
    """What can be said of models that are opened besides the policy's name; see `open_engine`."""

    draft: str | None
    prm: str | None
    judge: str | None
    adapter: str | None
    device: str
    dtype: str
    threads: int | None
    kv_memory: int | None
    max_model_len: int | None
    max_step_tokens: int | None
    deterministic: bool | None


class OpenEngine(msgspec.Struct, frozen=True):
    """A running engine, where its policy came from, and what drives the clocks of the searches on it.

    `backend` has the verbs of `engine.protocol.Backend`. Bound to the event loop that opened it.
    """

    backend: Backend
    source: ModelSource
    settler: Settler

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The open models by role: policy, draft, prm, judge."""
        return self.backend.models


@asynccontextmanager
async def open_engine(model: str = "reference", **options: Unpack[OpenOptions]) -> AsyncIterator[OpenEngine]:
    """Models by `--model`'s names (design section 7), in this process or on servers, until the block is left:
    the policy `model`, with the LoRA adapter of the PEFT folder `adapter`; `draft`, `prm` and `judge` beside
    it.

    `device` auto, cpu or cuda; `dtype` auto, float32 or bfloat16; `threads` of the CPU; `kv_memory` in bytes,
    for all models together; `max_model_len` in tokens; `max_step_tokens`: rows of a step at most.
    `deterministic`: the same logits whatever the batch.

    Raises `ModelLoadError` and `UsageError` in one line.
    """
    from .opening import load_engine  # brings torch

    if not structlog.is_configured():  # a library is quiet until its user says what to log
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    settler = Settler()
    loaded = await load_engine(model, **options, settle=settler.settle, due=settler.due)
    async with loaded.engine, settling(loaded.engine, loaded.source, settler) as engine:
        yield engine


@asynccontextmanager
async def settling(
    backend: Backend, source: ModelSource | None = None, settler: Settler | None = None
) -> AsyncIterator[OpenEngine]:
    """A back end that somebody else opened, with a task that drives the clocks of the searches on it."""
    settler = settler or Settler()
    source = source or ModelSource(name=backend.models["policy"].source, policy=Path())
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(settler.run)
        try:
            yield OpenEngine(backend, source, settler)
        except Exception as error:  # raised below: a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


def check_hosted(engine: OpenEngine, model: str | None, options: Mapping[str, Any]) -> None:
    """Refuse what an engine that is open already cannot give any more: other models than it has, another
    machine. Raises `UsageError`, `ModelLoadError`."""
    named = {"policy": model, **{role: options.get(role) for role in ("draft", "prm", "judge")}}
    for role, name in named.items():
        if name is not None:
            _check_model(engine, role, name)
    for option, value in options.items():
        if option not in named and value is not None:
            raise UsageError(f"{option}={value!r}: the engine given is open already; leave {option} out")


def _check_model(engine: OpenEngine, role: str, name: str) -> None:
    option, hosted = _OPTIONS.get(role, role), engine.models.get(role)
    if hosted is None:
        raise UsageError(
            f"{option}={name!r}: the engine given has no {role} open; open it with the engine, or leave "
            f"{option} out"
        )
    found = find_source(name, weights=False)
    if found.remote is not None:
        same = found.remote.name == hosted.source
    else:
        same = found.of(role).resolve() == Path(hosted.source).resolve()
    if not same:
        raise UsageError(
            f"{option}={name!r}: the engine given has {hosted.source} open as its {role}; leave {option} "
            "out, or open an engine of it"
        )
