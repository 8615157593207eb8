"""Plain data as lines of JSON: what may go between candidate and referee."""

import base64
import json
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

LINE_BYTES_MAX = 32 << 20
ITEMS_MAX = 200_000

sys.set_int_max_str_digits(0)


class NotPlainError(TypeError):
    """A value that is not plain data."""


Keep = Callable[[Any], int]
"""Keeps an object on its own side and names it by a number."""


def encode(value: Any, keep: Keep | None = None) -> Any:
    """A value as JSON. Subclasses of plain types become those; other objects stay behind, as `keep` says.

    Raises `NotPlainError` without `keep`, or for nesting beyond the recursion limit.
    """
    match value:
        case None | bool() | str():
            return value if value is None or isinstance(value, bool) else str.__str__(value)
        case int():
            return int.__add__(value, 0)
        case float():
            return float.__add__(value, 0.0) if value else float.__pos__(value)
        case complex():
            return {"complex": [value.real, value.imag]}
        case bytes() | bytearray():
            return {"bytes": base64.b64encode(bytes(value)).decode()}
        case list():
            return [encode(item, keep) for item in list.__iter__(value)]
        case tuple():
            return {"tuple": [encode(item, keep) for item in tuple.__iter__(value)]}
        case set():
            return {"set": [encode(item, keep) for item in set.__iter__(value)]}
        case frozenset():
            return {"frozenset": [encode(item, keep) for item in frozenset.__iter__(value)]}
        case dict():
            return {"dict": [[encode(k, keep), encode(v, keep)] for k, v in dict.items(value)]}
        case range():
            return {"range": [value.start, value.stop, value.step]}
        case Fraction():
            return {"fraction": [value.numerator, value.denominator]}
    if keep is None:
        raise NotPlainError(f"a {type(value).__name__} is not plain data")
    return {"object": keep(value)}


def decode(data: Any, find: Callable[[int], Any]) -> Any:
    """The value of what `encode` wrote; `find` gives the object of a number."""
    if isinstance(data, list):
        return [decode(item, find) for item in data]
    if not isinstance(data, dict):
        return data
    [(kind, content)] = data.items()
    match kind:
        case "complex":
            return complex(*content)
        case "bytes":
            return base64.b64decode(content)
        case "tuple":
            return tuple(decode(item, find) for item in content)
        case "set":
            return {decode(item, find) for item in content}
        case "frozenset":
            return frozenset(decode(item, find) for item in content)
        case "dict":
            return {decode(k, find): decode(v, find) for k, v in content}
        case "range":
            return range(*content)
        case "fraction":
            return Fraction(*content)
        case "object":
            return find(int(content))
    raise NotPlainError(f"{kind!r} is no kind of plain data")


class Line:
    """Messages over a socket, one JSON object a line."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        self._writer.flush()

    def receive(self) -> dict[str, Any]:
        """The next message. Raises `EOFError` at the end, or for a line that is none."""
        line = self._reader.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\n"):
            raise EOFError("the other side ended")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise EOFError("the other side sent no message")
        return message
