"""How an engine's memory is split between its models, as data."""

import msgspec


class ModelMemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One model's part, in bytes. `positions` is what its KV blocks hold, the trash block not counted."""

    model: str
    weights_bytes: int
    kv_bytes: int
    blocks: int
    block_size: int
    positions: int


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the models take together. KV pages that were never written take no memory on a CPU yet."""

    models: tuple[ModelMemoryPlan, ...]

    @property
    def weights_bytes(self) -> int:
        return sum(model.weights_bytes for model in self.models)

    @property
    def kv_bytes(self) -> int:
        return sum(model.kv_bytes for model in self.models)
