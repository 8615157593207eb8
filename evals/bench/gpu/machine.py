"""What the GPU itself can do: the machine that all bounds are computed for."""

from collections.abc import Iterator

import torch

from ....kernels.bounds import H200, Machine
from .l2_read import read_everywhere, room_for_sums
from .rows import Row, rated
from .setting import Setting

SECTION = "machine"


class Measuring:
    """The section, and the machine that it found; that of the bounds' own file until then."""

    def __init__(self) -> None:
        self.found: Machine | None = None

    def rows(self, setting: Setting) -> Iterator[Row]:
        """Copy bandwidth, reads from the L2 cache, and the rate of a large bf16 product."""
        copy = _copy_rate(setting)
        yield rated(SECTION, "copy", "GB/s", copy / 1e9, shape=f"{setting.sizes.copy_bytes >> 20} MiB")
        l2 = _l2_rate(setting)
        yield rated(SECTION, "read from L2", "GB/s", l2 / 1e9, shape=f"{setting.sizes.l2_bytes >> 10} KiB")
        flops, side = _product_rate(setting), setting.sizes.matmul_side
        yield rated(SECTION, "matmul", "TFLOP/s", flops / 1e12, shape=f"{setting.dtype} {side}^3")
        self.found = Machine(_name(setting.device), copy, flops, _l2_size(setting.device))


def _copy_rate(setting: Setting) -> float:
    source = torch.zeros(setting.sizes.copy_bytes, dtype=torch.uint8, device=setting.device)
    target = torch.empty_like(source)
    return 2 * source.numel() / setting.timer.seconds(lambda: target.copy_(source))


def _l2_rate(setting: Setting) -> float:
    words = torch.zeros(setting.sizes.l2_bytes // 4, dtype=torch.int32, device=setting.device)
    sums = room_for_sums(0 if setting.sizes.full else 2, setting.device)
    size = read_everywhere(words, sums)
    return size / setting.timer.seconds(lambda: read_everywhere(words, sums))


def _product_rate(setting: Setting) -> float:
    side = setting.sizes.matmul_side
    left, right = setting.normal(side, side), setting.normal(side, side)
    out = torch.empty_like(left)
    return 2 * side**3 / setting.timer.seconds(lambda: torch.mm(left, right, out=out))


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _l2_size(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    found = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    return int(found) or H200.l2_bytes
