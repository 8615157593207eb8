"""How steps are cut: `step=mark:TEXT` or `step=tokens:N` instead of the model's own mark."""

import re

import msgspec

from ..engine.errors import UsageError

_COUNT = re.compile(r"[1-9]\d{0,17}")


class Stepping(msgspec.Struct, frozen=True):
    """`mark` replaces the profile's step mark; `tokens` cuts by count; both None leaves the profile's."""

    mark: str | None = None
    tokens: int | None = None


def parse_step(text: str | None) -> Stepping:
    """Read the option. Raises `UsageError` for other forms."""
    if text is None:
        return Stepping()
    kind, colon, value = text.partition(":")
    if colon and value:
        if kind == "mark":
            return Stepping(mark=_unescaped(value))
        if kind == "tokens" and _COUNT.fullmatch(value):
            return Stepping(tokens=int(value))
    raise UsageError(f"step={text!r}: give mark:TEXT (a step ends at TEXT) or tokens:N (N above 0)")


def _unescaped(mark: str) -> str:
    r"""`\n`, `\t` and `\\` as a shell user writes them; anything else as it stands."""
    return re.sub(r"\\([nt\\])", lambda found: {"n": "\n", "t": "\t", "\\": "\\"}[found[1]], mark)
