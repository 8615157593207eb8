"""Whether a row's logits have the same bits alone, in any batch, and with keys shared or its own."""

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ....engine.exec.runner import Runner
from ....engine.protocol import SeqId
from .growth import Growth
from .models import model_of
from .rows import Row, held
from .setting import Setting

SECTION = "invariance"
_STEPS = 3


def rows(setting: Setting) -> Iterator[Row]:
    """Layers of the real shape, deterministic; the logits behind a prefill and of some steps."""
    bench = _Bench(setting)
    alone = bench.logits(bench.alone)
    told = f"{setting.dtype}, {1 + _STEPS} rows of logits behind {bench.prompt} positions"
    finite = bool(alone.isfinite().all())
    yield held(SECTION, "logits are finite", finite, shape=told)
    many = setting.sizes.together
    arrangements: dict[str, Callable[[Growth], tuple[SeqId, list[SeqId]]]] = {
        "alone again": bench.alone,
        "prefill in chunks": bench.chunked,
        "batch of 3, unshared": lambda growth: bench.beside(growth, 2),
        f"batch of {many}, unshared": lambda growth: bench.beside(growth, many - 1),
        "batch of 3, shared": lambda growth: bench.among_forks(growth, 2),
        f"batch of {many}, shared": lambda growth: bench.among_forks(growth, many - 1),
    }
    for name, arrangement in arrangements.items():
        found = bench.logits(arrangement)
        differ = (found != alone).sum().item()
        note = "" if not differ else f"{differ:.0f} of {alone.numel()} logits differ"
        yield held(SECTION, name, torch.equal(found, alone), shape=told, note=note)


class _Bench:
    """One runner, and the sequence whose logits are held against each other."""

    def __init__(self, setting: Setting) -> None:
        size, sizes = setting.sizes.page, setting.sizes
        self._size = size
        self._draw = random.Random(11)
        self._vocabulary = sizes.model["vocab_size"]
        self.prompt = sizes.context // 2 + size // 2
        self._tokens = self._random(self.prompt)
        self._forced = self._random(_STEPS)
        longest = self.prompt + _STEPS + 1
        self._blocks = 1 + (sizes.together + 1) * (-(-longest // size) + 1)
        model = model_of(setting, sizes.model, setting.dtype, 2 * longest, sizes.layers)
        self._runner = Runner(
            model,
            self._blocks,
            block_size=size,
            deterministic=True,
            max_rows=self.prompt + sizes.together,
            recorder=setting.make_recorder(),
        )

    def logits(self, arrange: Callable[[Growth], tuple[SeqId, list[SeqId]]]) -> Tensor:
        """Of the sequence [steps + 1, vocab]: the row that `arrange` computed last, then steps beside the
        others."""
        growth = Growth((self._runner,), self._blocks, self._size)
        seq, others = arrange(growth)
        found = [self._runner.kept_logits(seq).clone()]
        for token in self._forced:
            growth.append(seq, token)
            for place, other in enumerate(others):
                growth.append(other, (token + 7 * place + 1) % self._vocabulary)
            # Not first in the batch, where there are others.
            order = [*others[: len(others) // 2], seq, *others[len(others) // 2 :]]
            kept = growth.step(order)
            found.append(kept[order.index(seq)])
        return torch.stack(found)

    def alone(self, growth: Growth) -> tuple[SeqId, list[SeqId]]:
        """The prompt in one step."""
        seq = growth.open(self._tokens)
        growth.step([seq])
        return seq, []

    def chunked(self, growth: Growth) -> tuple[SeqId, list[SeqId]]:
        """The prompt in steps that end within blocks."""
        seq = growth.open(self._tokens)
        for rows in (self._size // 2 + 1, 3 * self._size + 5, self.prompt):
            if self._unfinished(growth, seq):
                growth.step([seq], rows=rows)
        return seq, []

    def beside(self, growth: Growth, count: int) -> tuple[SeqId, list[SeqId]]:
        """Prefilled beside a stranger, then others of other lengths with keys of their own."""
        lengths = [1 + (self.prompt * (place + 1)) // (count + 1) for place in range(count)]
        others = [growth.open(self._random(length)) for length in lengths]
        for other in others[1:]:
            growth.step([other])
        seq = growth.open(self._tokens)
        growth.step([others[0]], rows=max(1, self._size // 3))
        while pending := [one for one in (others[0], seq) if self._unfinished(growth, one)]:
            growth.step(pending, rows=2 * self._size + 3)
        return seq, others

    def among_forks(self, growth: Growth, count: int) -> tuple[SeqId, list[SeqId]]:
        """Forks of the prompt, which share its blocks and go on with other tokens."""
        seq, _ = self.alone(growth)
        return seq, [growth.fork(seq) for _ in range(count)]

    def _unfinished(self, growth: Growth, seq: SeqId) -> bool:
        branch = growth.branches[seq]
        return branch.computed < len(branch.tokens)

    def _random(self, count: int) -> list[int]:
        return [self._draw.randrange(self._vocabulary) for _ in range(count)]
