"""Attention in each configuration: block size, pointers or descriptors, stages, programs per processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from ....kernels import bounds
from ....kernels.gpu import tree_attention
from ....kernels.tables import RowSpan
from .attention_case import AttentionCase
from .rows import Outcome, Row, timed
from .setting import Setting
from .timed_attention import Work, layers_for, works

SECTION = "sweep"
_WORKS = ("plain decode", "best-of-64", "beam 64")


class _Choice(NamedTuple):
    """A configuration; `stages` 0 for the kernel's own choice."""

    size: int
    tma: bool
    stages: int
    per_processor: int

    @property
    def name(self) -> str:
        """As the table shows it."""
        path = "descriptors" if self.tma else "pointers"
        stages = f"{self.stages} stages" if self.stages else "own stages"
        return f"blocks of {self.size}, {path}, {stages}, {self.per_processor} programs"


def rows(setting: Setting) -> Iterator[Row]:
    """The likely ones first: the section ends when its time does."""
    chosen = [work for work in works(setting) if work.name.startswith(_WORKS) or not setting.sizes.full]
    for choice in setting.mine(_choices(setting)):
        for work in chosen:
            yield _timed(setting, choice, work)


def _choices(setting: Setting) -> Iterator[_Choice]:
    sizes = [size for size in setting.sizes.pages if size <= 64]
    paths = (False, True) if setting.tma else (False,)
    for tma in paths:
        for size in sorted(sizes, key=lambda size: abs(size - setting.sizes.page)):
            yield _Choice(size, tma, 0, 4)
    for per_processor in (2, 6):
        for tma in paths:
            yield _Choice(setting.sizes.page, tma, 0, per_processor)
    for stages in (2, 4, 5):
        for tma in paths:
            for size in sizes:
                yield _Choice(size, tma, stages, 4)


def _timed(setting: Setting, choice: _Choice, work: Work) -> Row:
    spans: list[RowSpan] = work.spans(choice.size)
    layers = layers_for(setting, spans)
    case = AttentionCase(setting, spans, choice.size, layers=layers)
    programs = _processors(setting.device) * choice.per_processor
    attention = case.items(tma=choice.tma, programs=programs)
    planned = attention.plan(case.spans)
    try:
        with _stages(choice.stages):
            seconds = setting.timer.seconds(lambda: case.run(attention, planned)) / layers
    except _too_large() as error:
        return Row(section=SECTION, name=choice.name, outcome=Outcome.NOTED, shape=work.name, note=f"{error}")
    bound = bounds.attention(setting.sizes.shape, case.tree(planned)).seconds(setting.machine)
    return timed(SECTION, choice.name, seconds, bound, shape=work.name)


@contextmanager
def _stages(count: int) -> Iterator[None]:
    """The kernel's launches with `count` stages."""
    own = tree_attention.stages
    if count:
        tree_attention.stages = lambda tile_bytes: count
    try:
        yield
    finally:
        tree_attention.stages = own


def _too_large() -> type[Exception]:
    """What Triton raises for a build that no processor has room for."""
    from triton.runtime.errors import OutOfResources

    return OutOfResources


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
