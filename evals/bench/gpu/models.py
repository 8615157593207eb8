"""Runners on models of random weights."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from ....engine.exec.passes import EagerPasses, Passes
from ....engine.exec.recorded import Recorder
from ....engine.exec.runner import Runner
from ....engine.models.open import LoadedModel
from ..random_model import random_model
from .setting import Setting

T = TypeVar("T")


class EagerRunner(Runner):
    """A runner that records nothing, also on a GPU."""

    def _make_passes(self, recorder: Recorder | None) -> Passes:
        return EagerPasses(self._decoder, self.cache, self._attention, self._row_tile)


class Counting:
    """Implements `Recorder` by another one, and counts the recordings and replays."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.recorded = 0
        self.replayed = 0

    def record(self, work: Callable[[], T]) -> Callable[[], T]:
        """See `Recorder.record`."""
        self.recorded += 1
        replay = self._recorder.record(work)

        def counted() -> T:
            self.replayed += 1
            return replay()

        return counted


def model_of(
    setting: Setting, fields: Mapping[str, int], dtype: torch.dtype, positions: int, layers: int | None = None
) -> LoadedModel:
    """A random model on the setting's device, with `layers` layers where they are given."""
    chosen = dict(fields) if layers is None else {**fields, "num_hidden_layers": layers}
    return random_model(chosen, dtype=dtype, device=setting.device, max_model_len=positions)
