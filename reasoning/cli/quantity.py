"""Text to figures: budgets, memory sizes and key=value settings, with errors that say what would be right."""

import math
import re
from collections.abc import Iterable
from decimal import Decimal

from ...engine.errors import UsageError
from ..budget import Budget
from .nearest import hint

DEFAULT_BUDGET = "tokens=16384"

_FIELDS = ("tokens", "flops", "seconds", "kv_tokens", "answer_reserve")
_SCALE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_COUNT = re.compile(r"([+-]?\d[\d_]{0,39}(?:\.\d{1,40})?(?:[eE]\+?\d{1,2})?)([kMGTP]?)")
_SIZE = re.compile(r"(\d{1,40}(?:\.\d{1,40})?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def parse_budget(text: str) -> Budget:
    """`tokens=4096,seconds=60` to a `Budget`; counts may end in k, M, G, T or P (thousands)."""
    values: dict[str, int | float] = {}
    for name, value in parse_pairs(text, what="budget", example=DEFAULT_BUDGET):
        if name not in _FIELDS:
            raise UsageError(f"budget {name!r}: no such limit; {hint(name, _FIELDS)}")
        if name in values:
            raise UsageError(f"budget {name}: given twice in {text!r}; give each limit once")
        values[name] = _seconds(value) if name == "seconds" else _count(name, value)
    return Budget(**values)  # pyright: ignore[reportArgumentType]  # _seconds and _count give each field its type


def parse_pairs(text: str, *, what: str, example: str) -> list[tuple[str, str]]:
    """`a=1,b=2` to pairs."""
    pairs = []
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not (name and sign and value):
            raise UsageError(
                f"{what} {part.strip()[:60]!r}: not of the form name=value; write it like {example}"
            )
        pairs.append((name, value))
    return pairs


def parse_bytes(text: str) -> int:
    """`2GiB`, `512MiB`, `2GB` or bytes. Units with an i are powers of 1024, others of 1000."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not float(match[1]) > 0:
        raise UsageError(f"memory size {text!r}: give a number above 0 with a unit, such as 2GiB or 512MiB")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def format_budget(budget: Budget) -> str:
    """The grammar of `parse_budget`, backwards."""
    given = ((name, getattr(budget, name)) for name in _FIELDS)
    return ",".join(f"{name}={value}" for name, value in given if value is not None)


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """The `--set name=value` options, values still as text."""
    settings: dict[str, str] = {}
    for text in texts:
        name, sign, value = (piece.strip() for piece in text.partition("="))
        if not (name and sign and value):
            raise UsageError(f"--set {text!r}: not of the form name=value; write it like --set n=32")
        settings[name] = value
    return settings


def _count(name: str, text: str) -> int:
    match = _COUNT.fullmatch(text)
    value = Decimal(match[1]) * _SCALE[match[2]] if match else None
    if value is None or value != value.to_integral_value():
        raise UsageError(f"budget {name}={text}: not a whole number; write it like {name}=4096 or {name}=4k")
    return int(value)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"budget seconds={text}: not a number of seconds; write it like seconds=60")
    return value
