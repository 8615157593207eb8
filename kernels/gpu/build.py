"""How a kernel is built for a GPU, as data: what the compile check needs and what it holds against."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a build may take on one architecture: registers per thread, and bytes of shared memory
    per program."""

    registers: int
    shared_bytes: int


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a kernel as it is launched.

    `signature` names the type of every argument that is no constant, in Triton's notation ("*bf16", "i32",
    "tensordesc<bf16[64,128]>"); `constants` the others' values. Pointers, and the integers in `divisible`,
    are multiples of 16, as the launcher sees to. `ceilings` by compute capability (80, 90, 100): the build
    is checked for those. `wants_async`: its loads must be asynchronous copies of 128 bits or TMA, with
    `narrow_async` narrower ones at most; `wants_hgmma`: on 90 it must use warp-group products.
    """

    name: str
    kernel: Callable[..., Any]
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    ceilings: Mapping[int, Ceiling]
    warps: int = 4
    stages: int = 3
    divisible: tuple[str, ...] = ()
    wants_async: bool = False
    narrow_async: int = 4
    wants_hgmma: bool = False
