"""Where the GPU check runs, and at which sizes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import msgspec
import torch
from torch import Tensor

from ....engine.exec.recorded import Recorder
from ....kernels.bounds import LLAMA_8B, Machine, Shape
from ..random_model import LLAMA_8B as LLAMA_8B_FIELDS
from .timer import Timer

T = TypeVar("T")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What is computed: the goals in this package are for `FULL`, and for no other.

    `shape` is of the kernels' operands and `small` of those in fp32; `model` and `small_model` are fields of
    a `config.json`. Rows: `decode` of a step, `many` behind which a goal stands for more, `prefill` of a
    chunk, `scored` by the LM head at once. `branches` grow `new` tokens behind `prompt`.
    """

    shape: Shape
    small: Shape
    model: Mapping[str, int]
    layers: int
    small_model: Mapping[str, int]
    copy_bytes: int
    l2_bytes: int
    matmul_side: int
    pages: tuple[int, ...]
    page: int
    tree_rows: int
    context: int
    decode: int
    many: int
    prefill: int
    scored: int
    blocks: int
    drafts: int
    branches: int
    prompt: int
    answer: int
    new: int
    steps: int
    together: int
    full: bool


_SMALL_MODEL = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}

FULL = Sizes(
    shape=LLAMA_8B,
    small=Shape(
        layers=2,
        heads=8,
        kv_heads=2,
        head_dim=64,
        hidden=512,
        intermediate=1024,
        vocabulary=8192,
        element_bytes=4,
    ),
    model=LLAMA_8B_FIELDS,
    layers=2,
    small_model=_SMALL_MODEL,
    copy_bytes=1 << 31,
    l2_bytes=8 << 20,
    matmul_side=8192,
    pages=(16, 32, 64, 128),
    page=32,
    tree_rows=64,
    context=2048,
    decode=64,
    many=256,
    prefill=8192,
    scored=4096,
    blocks=64,
    drafts=4,
    branches=64,
    prompt=2048,
    answer=512,
    new=64,
    steps=20,
    together=64,
    full=True,
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`dtype` is that of the kernels' operands at `sizes.shape`. `machine` gives the bounds; `tma`: whether
    the device has descriptors of tiles. `make_recorder` makes what records passes; `generator`, of the
    device, draws all operands. `share` is what one of several processes does, (0, 1) all of it."""

    device: torch.device
    dtype: torch.dtype
    sizes: Sizes
    timer: Timer
    machine: Machine
    tma: bool
    make_recorder: Callable[[], Recorder]
    generator: torch.Generator
    share: tuple[int, int] = (0, 1)

    def mine(self, jobs: Iterable[T]) -> Iterator[T]:
        """Every n-th of `jobs` from the i-th on, where `share` is (i, n)."""
        return islice(jobs, self.share[0], None, self.share[1])

    def normal(self, *shape: int, dtype: torch.dtype | None = None, deviation: float = 1.0) -> Tensor:
        """Normal values on the device."""
        empty = torch.empty(shape, dtype=dtype or self.dtype, device=self.device)
        return empty.normal_(0.0, deviation, generator=self.generator)

    def integers(self, below: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Uniform integers in [0, below) on the device."""
        return torch.randint(below, shape, dtype=dtype, device=self.device, generator=self.generator)

    @property
    def kinds(self) -> tuple[tuple[Shape, torch.dtype, str], ...]:
        """Shapes and types that results are checked at: the real one, and a small one in fp32."""
        name = str(self.dtype).removeprefix("torch.")
        return (self.sizes.shape, self.dtype, name), (self.sizes.small, torch.float32, "float32 small")


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 6e-3}
"""Norm of the difference over the norm of what is expected."""


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of `expected`; infinite where something is not finite."""
    difference = (found.double() - expected.double()).norm() / expected.double().norm()
    return difference.item() if bool(difference.isfinite()) else float("inf")
