"""What a run is done on."""

import msgspec

from ...reasoning.cli.requests import Opening
from .recipe import Recipe


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """It changes a run's seconds, not its results. `ray` is a cluster's address, or "local"; the rest then
    holds for each of its engines."""

    parallel: int = 8
    ray: str | None = None
    device: str = "auto"
    threads: int | None = None
    kv_memory: int | None = None

    @classmethod
    def of(cls, opening: Opening, *, parallel: int, ray: str | None = None) -> "Machine":
        own = {name: getattr(opening, name) for name in _shared(cls)}
        return cls(parallel=parallel, ray=ray, **own)

    def opening(self, recipe: Recipe) -> Opening:
        """The recipe's models, on this machine."""
        ours = {name: getattr(self, name) for name in _shared(type(self))}
        return Opening(**ours, **{name: getattr(recipe, name) for name in _shared(Recipe)})


def _shared(struct: type[msgspec.Struct]) -> list[str]:
    """The fields of `Opening` that `struct` has: a recipe's decide results, a machine's do not."""
    return [name for name in Opening.__struct_fields__ if name in struct.__struct_fields__]
