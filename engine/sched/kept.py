"""Which rows of logits the runner keeps for members of a trunk that have not sampled yet."""

from collections import OrderedDict

from ..protocol import SeqId
from .sequence import Sequence


class KeptRows:
    """At most `limit` rows per model, the longest unused one forgotten first; a forgotten row is computed
    again when it is needed, with its write sent to the trash block. The scheduler says so by
    `Sequence.logits_kept`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[str, OrderedDict[SeqId, Sequence]] = {}
        self._forget: dict[str, list[SeqId]] = {}

    def keep(self, trunk: Sequence) -> None:
        """A committed step kept the last row of `trunk`, or used it."""
        rows = self._rows.setdefault(trunk.memory.name, OrderedDict())
        trunk.logits_kept = True
        rows[trunk.id] = trunk
        rows.move_to_end(trunk.id)
        while len(rows) > self._limit:
            self.forget(next(iter(rows.values())))

    def forget(self, trunk: Sequence) -> None:
        """The row is not needed any more, or stands for KV that was given up."""
        trunk.logits_kept = False
        del self._rows[trunk.memory.name][trunk.id]
        self._forget.setdefault(trunk.memory.name, []).append(trunk.id)

    def never_needed(self, trunk: Sequence) -> None:
        """A step kept the row of a trunk that ended with that step."""
        self._forget.setdefault(trunk.memory.name, []).append(trunk.id)

    def take_forgotten(self, model: str) -> tuple[SeqId, ...]:
        """What the next plan of `model` tells its runner to drop."""
        return tuple(self._forget.pop(model, ()))

    def forget_again(self, model: str, forgotten: tuple[SeqId, ...]) -> None:
        """The step that should have dropped them failed."""
        if forgotten:
            self._forget.setdefault(model, []).extend(forgotten)
