"""Numbers as people read them."""

import math
from collections.abc import Callable

from ..statistics.intervals import Estimate

UNKNOWN = "not known"
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def si(value: float) -> str:
    """Three digits with an SI prefix: `73.2 M`, `512`, `0.449`."""
    value = float(f"{value:.3g}")
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)} {prefix}"
    return _three_digits(value)


def percent(value: float) -> str:
    """`92.5 %`."""
    return f"{100 * value:.1f} %"


def signed_points(value: float) -> str:
    """`+10.0`, in percentage points, with a true minus sign."""
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def p_value(p: float | None) -> str:
    """`0.032`, `< 0.001`."""
    if p is None:
        return UNKNOWN
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def quantity(estimate: Estimate | None) -> str:
    """`352 M (266 M to 438 M)`."""
    return UNKNOWN if estimate is None else f"{si(estimate.value)}{interval(estimate, si)}"


def rate(estimate: Estimate | None) -> str:
    """`92.5 % (83.1 to 96.9)`."""
    return UNKNOWN if estimate is None else f"{percent(estimate.value)}{interval(estimate, _bare_percent)}"


def difference(estimate: Estimate | None) -> str:
    """`+22.5 (+10.0 to +35.0)` points."""
    if estimate is None:
        return UNKNOWN
    return f"{signed_points(estimate.value)}{interval(estimate, signed_points)}"


def interval(estimate: Estimate | None, written: Callable[[float], str]) -> str:
    """` (low to high)`; nothing where there are no ends."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f" ({written(estimate.low)} to {written(estimate.high)})"


def _bare_percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-12))
    return f"{value:.{min(decimals, 6)}f}"
