"""Models from disk to `EngineModel`s: load each, split one KV memory budget between them, say what each
got.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio.to_thread
import structlog
import torch

from ..kernels.choice import ChoiceError, Family, family
from ..kernels.native.build import BuildError
from ..kernels.native.library import library
from .errors import CapacityError, ModelLoadError, UsageError
from .exec.cache import KvCache, bytes_per_block
from .exec.packed_check import check_packed
from .exec.probe import CudaGauge, Gauge, step_bytes
from .exec.runner import Runner
from .exec.threads import fastest_threads
from .hosted import EngineModel
from .models.open import LoadedModel, open_model

log = structlog.get_logger(__name__)

CPU_KV_BYTES = 1 << 30
"""KV memory on the CPU unless told otherwise. Pages that are never written take no memory."""

GPU_RESERVE_BYTES = 1 << 30
"""GPU memory that stays free beside weights, steps and KV: recorded passes keep work memory of their own, and
libraries take some when they are first used."""

CPU_BLOCK_SIZE, GPU_BLOCK_SIZE = 16, 32
"""Positions per KV block unless told otherwise; of a block on the GPU the kernels read whole tiles."""

MOST_THREADS = 1024

MAX_SEQUENCES = 1024
"""A pool larger than this many sequences of full length is of no use."""


def load_models(
    sources: Mapping[str, str | Path],
    *,
    dtype: str = "float32",
    device: str = "cpu",
    kv_memory: int | None = None,
    block_size: int | None = None,
    max_model_len: int | None = None,
    max_rows: int = 2048,
    deterministic: bool = False,
    adapters: Mapping[str, str | Path] | None = None,
) -> dict[str, EngineModel]:
    """Open the model of each role, with the LoRA adapter that `adapters` names for it. `kv_memory` is in
    bytes, for all of them together.

    Every pool gets the same number of blocks: a reward or draft model mirrors the policy's branches, position
    by position.
    """
    adapters = adapters or {}
    if not sources:
        raise UsageError("no model is named; name at least the policy")
    target = torch.device(device)
    if block_size is None:
        block_size = CPU_BLOCK_SIZE if target.type == "cpu" else GPU_BLOCK_SIZE
    if block_size < 1:
        raise UsageError(f"block_size is {block_size}; it must be at least 1 position")
    _check_kernels(target)
    for role in adapters:
        if role not in sources:
            raise UsageError(f"an adapter for {role!r}, which is not open; open are {', '.join(sources)}")
    loaded = {
        role: open_model(
            source,
            name=role,
            dtype=dtype,
            device=device,
            max_model_len=max_model_len,
            adapter=adapters.get(role),
        )
        for role, source in sources.items()
    }
    for model in loaded.values():
        check_packed(model)
    if kv_memory is None:
        kv_memory = default_kv_memory(
            list(loaded.values()),
            None if target.type == "cpu" else CudaGauge(target),
            block_size=block_size,
            max_rows=max_rows,
            deterministic=deterministic,
        )
    num_blocks = blocks_in(kv_memory, list(loaded.values()), block_size)
    return {
        role: _engine_model(role, model, num_blocks, block_size, max_rows, deterministic=deterministic)
        for role, model in loaded.items()
    }


async def use_threads(threads: int | None, models: Mapping[str, EngineModel]) -> None:
    """Let the CPU compute with `threads`, or with as many as make the first model's steps fastest.
    `UsageError` for a number that no machine has."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"threads is {threads}; it must be 1 to {MOST_THREADS}, or None to measure")
    first = next(iter(models.values()))
    runner = first.runner
    assert isinstance(runner, Runner)
    if runner.model.decoder.device.type != "cpu":
        return
    if threads is None:
        threads = await anyio.to_thread.run_sync(fastest_threads, runner, first.weights_bytes)
    torch.set_num_threads(threads)


def default_kv_memory(
    models: Sequence[LoadedModel],
    gauge: Gauge | None,
    *,
    block_size: int,
    max_rows: int,
    deterministic: bool,
) -> int:
    """Bytes of KV memory when none are asked for: on a GPU, watched by `gauge`, what is free once the weights
    are loaded, less what steps take."""
    if gauge is None:
        return CPU_KV_BYTES
    taken = sum(
        step_bytes(model, gauge, block_size=block_size, max_rows=max_rows, deterministic=deterministic)
        for model in models
    )
    found = gauge.free_bytes() - taken - GPU_RESERVE_BYTES
    log.info("gpu memory", step_megabytes=round(taken / 1e6, 1), kv_megabytes=round(found / 1e6, 1))
    return max(0, found)


def _check_kernels(device: torch.device) -> None:
    """Raises `UsageError` for kernels that were asked for and cannot be had."""
    try:
        if family(device) is Family.NATIVE:
            library()
    except (BuildError, ChoiceError) as error:
        raise UsageError(str(error)) from None


def blocks_in(kv_memory: int, models: list[LoadedModel], block_size: int) -> int:
    """Blocks that each of the models can have, the trash block included."""
    per_block = sum(bytes_per_block(model.decoder.shape, block_size, model.decoder.dtype) for model in models)
    longest = max(model.info.max_model_len for model in models)
    blocks = min(kv_memory // per_block, -(-longest // block_size) * MAX_SEQUENCES + 1)
    if blocks < 2:
        raise CapacityError(
            f"{kv_memory} bytes of KV memory are too few: {block_size} positions take {per_block} bytes "
            f"on {len(models)} model(s), and two such blocks are needed at least"
        )
    return blocks


def _reopen(
    role: str,
    running: Runner,
    max_rows: int,
    deterministic: bool,
    source: str | Path,
    adapter: str | Path | None,
) -> EngineModel:
    """The weights of `source` on the KV memory of `running`."""
    before, cache = running.model, running.cache
    model = open_model(
        source,
        name=role,
        dtype=before.decoder.dtype,
        device=str(before.decoder.device),
        max_model_len=before.info.max_model_len,
        adapter=adapter,
    )
    if model.decoder.shape != before.decoder.shape or model.info.head != before.info.head:
        raise ModelLoadError(
            f"{source} has another shape than {before.info.source}, in whose place it should go; "
            "open it in an engine of its own"
        )
    check_packed(model)
    return _engine_model(
        role, model, cache.num_blocks, cache.block_size, max_rows, deterministic=deterministic, cache=cache
    )


def _engine_model(
    role: str,
    model: LoadedModel,
    num_blocks: int,
    block_size: int,
    max_rows: int,
    *,
    deterministic: bool,
    cache: KvCache | None = None,
) -> EngineModel:
    dtype = str(model.decoder.dtype).removeprefix("torch.")
    block_bytes = bytes_per_block(model.decoder.shape, block_size, model.decoder.dtype)
    log.info(
        "kv memory",
        model=role,
        blocks=num_blocks,
        positions=(num_blocks - 1) * block_size,
        megabytes=round(num_blocks * block_bytes / 1e6, 1),
        weights_megabytes=round(model.weights_bytes / 1e6, 1),
    )
    runner = Runner(
        model, num_blocks, block_size=block_size, deterministic=deterministic, max_rows=max_rows, cache=cache
    )
    return EngineModel(
        info=model.info,
        runner=runner,
        num_blocks=num_blocks,
        block_size=block_size,
        kv_format=f"{dtype}/deterministic={deterministic}",
        weights_bytes=model.weights_bytes,
        block_bytes=block_bytes,
        reopen=partial(_reopen, role, runner, max_rows, deterministic),
    )
