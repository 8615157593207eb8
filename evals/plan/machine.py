"""A machine as a plan knows it: rates, fixed costs and memory, from a table, a file or a measurement."""

import math
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...kernels import bounds

ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}

LARGEST_FILE = 1 << 20
"""Bytes of the longest description that is read."""


class Rate(msgspec.Struct, frozen=True, array_like=True):
    """Operations per second that layers reach in a step of `rows` rows."""

    rows: int
    flops_per_s: float


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step's time is worked out from. A bound needs `bytes_per_s` and `flops_per_s` alone: each part
    of a step takes the longer of its bytes and its operations at these rates, which are those of `dtype`.

    A measured machine says more: `products`, by rising rows, are the rates of whole layers without context,
    norms and the like included, beside which `flops_per_s` has no say; `decode_attention_flops_per_s` and
    `prefill_attention_flops_per_s` are what attention reaches for single rows and for runs of rows, 0 for
    `flops_per_s`. Fixed costs in seconds: `step_s` of a step, `draw_s` of a drawn token, `logit_s` of a logit
    that is drawn from.
    """

    name: str
    bytes_per_s: float
    flops_per_s: float
    memory_bytes: int
    dtype: str = "bfloat16"
    products: tuple[Rate, ...] = ()
    decode_attention_flops_per_s: float = 0.0
    prefill_attention_flops_per_s: float = 0.0
    step_s: float = 0.0
    draw_s: float = 0.0
    logit_s: float = 0.0

    def __post_init__(self) -> None:
        if self.dtype not in ELEMENT_BYTES:
            raise UsageError(
                f"machine {self.name}: dtype is {self.dtype!r}; give {' or '.join(ELEMENT_BYTES)}"
            )
        for name in ("bytes_per_s", "flops_per_s", "memory_bytes"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"machine {self.name}: {name} is {getattr(self, name)}; it must be above 0")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise UsageError(f"machine {self.name}: {name} is {value}; it must be 0 or more")
        if any(rate.rows < 1 or not 0 < rate.flops_per_s < math.inf for rate in self.products):
            raise UsageError(f"machine {self.name}: products need rows and rates above 0")
        if any(one.rows >= other.rows for one, other in pairwise(self.products)):
            raise UsageError(f"machine {self.name}: products must stand by rising rows")

    @property
    def roofline(self) -> bounds.Machine:
        """The machine as the bounds know it."""
        return bounds.Machine(self.name, self.bytes_per_s, self.flops_per_s, l2_bytes=0)

    def product_flops_per_s(self, rows: int) -> float:
        """Rate of products with so many rows: between two measured ones on the line through their times."""
        if not self.products:
            return self.flops_per_s
        place = bisect_left(self.products, rows, key=lambda rate: rate.rows)
        if place == 0:
            return self.products[0].flops_per_s
        if place == len(self.products):
            return self.products[-1].flops_per_s
        before, behind = self.products[place - 1], self.products[place]
        share = (rows - before.rows) / (behind.rows - before.rows)
        seconds = (1 - share) * before.rows / before.flops_per_s + share * behind.rows / behind.flops_per_s
        return rows / seconds

    def attention_flops_per_s(self, *, prefill: bool) -> float:
        """Rate of attention for runs of rows, or for single ones."""
        measured = self.prefill_attention_flops_per_s if prefill else self.decode_attention_flops_per_s
        return measured or self.flops_per_s


def read_machine(path: str) -> Machine:
    """The machine that the JSON file describes: an object with the fields of `Machine`. `UsageError` in one
    line where it does not."""
    file = user_path(path)
    try:
        size = file.stat().st_size
        text = file.read_bytes() if size <= LARGEST_FILE else b""
    except (OSError, ValueError) as error:
        raise UsageError(f"--machine {path}: cannot be read ({_reason(error)})") from None
    if not text:
        raise UsageError(f"--machine {path}: {size} bytes; a machine is a JSON object of a few lines")
    try:
        return msgspec.json.decode(text, type=Machine)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--machine {path}: {error}; give at least name, bytes_per_s, flops_per_s and memory_bytes"
        ) from None


def write_machine(machine: Machine, path: Path) -> None:
    """The file that `read_machine` reads."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(machine), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"--save-machine {path}: cannot be written ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
