"""A model as an engine hosts it: facts, runner and the KV pool that the runner has memory for."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from .errors import UsageError
from .kv.pool import BlockPool
from .kv.prefix import KvIdentity, PrefixIndex
from .loop import StepRunner
from .memory_plan import MemoryPlan, ModelMemoryPlan
from .protocol import Capabilities, ModelInfo
from .sched.memory import ModelMemory

Reopen = Callable[[str | Path, str | Path | None], "EngineModel"]
"""Loads the weights of a source, with a LoRA adapter, into a model on the same KV memory."""


def refuse_to_reopen(source: str | Path, adapter: str | Path | None) -> "EngineModel":
    """The `Reopen` of a model that was not loaded from a source."""
    raise UsageError(f"{source} cannot take the place of a model that was not opened from a source")


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
    reopen: Reopen = refuse_to_reopen

    @property
    def kv_identity(self) -> KvIdentity:
        """What KV of this model must share with KV that is found in the cache."""
        return KvIdentity(
            weights_digest=self.info.weights_digest,
            adapter=self.info.adapter_digest,
            kv_format=self.kv_format,
            block_size=self.block_size,
        )


def make_memory(name: str, model: EngineModel) -> ModelMemory:
    pool = BlockPool(model.num_blocks, model.block_size)
    return ModelMemory(name, model.info, pool, PrefixIndex(pool, model.kv_identity))


def capabilities_of(infos: Iterable[ModelInfo]) -> Capabilities:
    """What an engine that hosts these models can do."""
    heads = {info.head for info in infos}
    return Capabilities(
        score_logprob="lm" in heads,
        score_reward="reward" in heads,
        token_stats=True,
        exact_meter=True,
        kv_account=True,
        seeds=True,
        speculates=True,
        constrains=True,
    )


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
