"""Whether recorded passes do what eager ones do, and whether they are recorded once."""

import random
from collections.abc import Iterator, Mapping

import torch

from ....engine.exec.runner import Runner
from ....engine.protocol import SeqId
from ....engine.sampling.params import SamplingParams
from .growth import Compared, Growth
from .models import Counting, EagerRunner, model_of
from .rows import Row, checked, held
from .setting import Setting

SECTION = "replay"
LOGITS = 2e-4
"""Largest difference of fp32 logits: products of padded rows may be summed in another order."""
_PARAMS = SamplingParams(temperature=0.8)


def rows(setting: Setting) -> Iterator[Row]:
    """A small model in fp32, whose logits agree and whose tokens are equal; and layers of the real shape in
    the deterministic mode, whose logits have equal bits."""
    sizes = setting.sizes
    plain = _Pair(setting, sizes.small_model, torch.float32, None, deterministic=False)
    compared = plain.grow()
    told = f"float32, {compared.steps} steps, {plain.branches} branches"
    yield checked(SECTION, "logits, recorded and eager", compared.difference, LOGITS, shape=told)
    yield held(SECTION, "tokens, recorded and eager", compared.tokens == 0, shape=told)
    yield from plain.again(told)
    fixed = _Pair(setting, sizes.model, setting.dtype, sizes.layers, deterministic=True)
    compared = fixed.grow()
    told = f"{setting.dtype}, deterministic, {compared.steps} steps, {fixed.branches} branches"
    yield held(SECTION, "bits, recorded and eager", compared.equal and compared.tokens == 0, shape=told)
    yield from fixed.again(told)


class _Pair:
    """One model's weights under an eager runner and under one that records."""

    def __init__(
        self,
        setting: Setting,
        fields: Mapping[str, int],
        dtype: torch.dtype,
        layers: int | None,
        *,
        deterministic: bool,
    ) -> None:
        size = setting.sizes.page
        self._size = size
        self._steps = setting.sizes.steps
        self._prompt = size + size // 2
        self._longest = 4 * self._prompt + 2 * self._steps
        self._vocabulary = fields["vocab_size"]
        self.branches = min(6, setting.sizes.branches)
        self._blocks = 1 + (self.branches + 1) * -(-self._longest // size)
        self.recorder = Counting(setting.make_recorder())
        most = max(self._prompt, self.branches)
        shared = {"block_size": size, "deterministic": deterministic, "max_rows": most}
        models = [model_of(setting, fields, dtype, self._longest, layers) for _ in range(2)]
        eager = EagerRunner(models[0], self._blocks, **shared)
        recorded = Runner(models[1], self._blocks, recorder=self.recorder, **shared)
        self._runners = (eager, recorded)

    def grow(self) -> Compared:
        """A prompt in two chunks, then steps in which branches fork until there are enough."""
        growth = Growth(self._runners, self._blocks, self._size)
        draw = random.Random(5)
        root = growth.open([draw.randrange(self._vocabulary) for _ in range(self._prompt)])
        growth.step([root], rows=self._size + 3)
        growth.step([root], _PARAMS)
        family: list[SeqId] = [root]
        for step in range(self._steps):
            if step % 2 and len(family) < self.branches:
                family.append(growth.fork(family[step % len(family)]))
                growth.branches[family[-1]].tokens[-1] = draw.randrange(self._vocabulary)
            growth.step(family, _PARAMS)
        return growth.compared

    def again(self, told: str) -> Iterator[Row]:
        """The same growth once more: what was recorded serves it."""
        made, replayed = self.recorder.recorded, self.recorder.replayed
        compared = self.grow()
        more = self.recorder.recorded - made
        note = f"{made} recordings, {more} more the second time"
        good = more == 0 and self.recorder.replayed - replayed >= compared.steps
        yield held(SECTION, "nothing is recorded again", good and made > 0, shape=told, note=note)
