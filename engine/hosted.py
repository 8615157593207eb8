"""A model as an engine hosts it: facts, runner and the KV pool that the runner has memory for."""

from collections.abc import Mapping

import msgspec

from .kv.pool import BlockPool
from .kv.prefix import KvIdentity, PrefixIndex
from .loop import StepRunner
from .memory_plan import MemoryPlan, ModelMemoryPlan
from .protocol import ModelInfo
from .sched.memory import ModelMemory


class EngineModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model ready to run: its facts, its runner, and the KV pool that the runner has memory for.

    `kv_format` names whatever makes KV of equal weights differ: dtype, layout, whether numerics are
    deterministic. Bytes are of all weights, and of one KV block over all layers; 0 where nobody counts them.
    """

    info: ModelInfo
    runner: StepRunner
    num_blocks: int
    block_size: int
    kv_format: str = ""
    weights_bytes: int = 0
    block_bytes: int = 0


def make_memory(name: str, model: EngineModel) -> ModelMemory:
    pool = BlockPool(model.num_blocks, model.block_size)
    identity = KvIdentity(
        weights_digest=model.info.weights_digest,
        adapter=model.info.adapter_digest,
        kv_format=model.kv_format,
        block_size=model.block_size,
    )
    return ModelMemory(name, model.info, pool, PrefixIndex(pool, identity))


def memory_plan(models: Mapping[str, EngineModel]) -> MemoryPlan:
    return MemoryPlan(
        models=tuple(
            ModelMemoryPlan(
                model=name,
                weights_bytes=model.weights_bytes,
                kv_bytes=model.num_blocks * model.block_bytes,
                blocks=model.num_blocks,
                block_size=model.block_size,
                positions=(model.num_blocks - 1) * model.block_size,
            )
            for name, model in models.items()
        )
    )
