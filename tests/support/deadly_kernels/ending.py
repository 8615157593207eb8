"""Ends the process when the build's constants are read, which only compiling does."""

import os
from collections.abc import Iterator, Mapping

import triton
from branchwise.kernels.gpu.build import Build, Ceiling


class Ending(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        os._exit(9)

    def __iter__(self) -> Iterator[str]:
        os._exit(9)

    def __len__(self) -> int:
        return 0


@triton.jit
def nothing(x):
    pass


def builds() -> list[Build]:
    ceilings = {90: Ceiling(registers=32, shared_bytes=0)}
    return [
        Build(name="ending", kernel=nothing, signature={"x": "*i32"}, constants=Ending(), ceilings=ceilings)
    ]
