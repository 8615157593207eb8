"""How a benchmark runs: the model, the numerics, and who runs beside the engine."""

from pathlib import Path

import msgspec

from .machine import core_count
from .peer_choice import PeerChoice
from .peer_models import default_work


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all workloads have in common.

    `threads` is the same number for the engine and each peer. With `deterministic` the engine runs twice, its
    deterministic mode as one more contender: the ratio is what that mode costs. `repeats` timed runs of each
    count. Forms of the model that peers read are kept in `work`.
    """

    model: str = "reference"
    dtype: str = "float32"
    threads: int = msgspec.field(default_factory=core_count)
    deterministic: bool = False
    repeats: int = 3
    peers: tuple[PeerChoice, ...] = ()
    work: Path = msgspec.field(default_factory=default_work)
