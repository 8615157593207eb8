"""What callers hand to the engine, checked in their own frame: on the engine's thread a wrong type would end
other requests too."""

from collections.abc import Iterable
from functools import cache
from operator import index
from reprlib import repr
from typing import TypeVar

import msgspec

from .errors import UsageError

T = TypeVar("T")


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A struct whose fields have their declared types and ranges however it is made. Raises `UsageError` in
    one line for a value that does not fit."""

    def __post_init__(self) -> None:
        for name, annotation in _annotations(type(self)):
            value = getattr(self, name)
            try:
                checked = msgspec.convert(value, annotation)
            except msgspec.ValidationError as error:
                message = str(error)
                raise UsageError(f"{name} is {repr(value)}: {message[0].lower()}{message[1:]}") from None
            msgspec.structs.force_setattr(self, name, checked)


@cache
def _annotations(kind: type[msgspec.Struct]) -> tuple[tuple[str, type], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


def whole_numbers(name: str, values: Iterable[object]) -> tuple[int, ...]:
    """The values as plain integers, those of arrays and tensors included. Raises `UsageError`."""
    try:
        return tuple(map(index, values))  # pyright: ignore[reportArgumentType]  # that is what is found out
    except TypeError as error:
        raise UsageError(f"{name} are {repr(values)}: they must be integers ({error})") from None


def checked_text(name: str, value: object) -> str:
    """A string that can be encoded. Raises `UsageError`."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {repr(value)}: it must be text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is {ascii(value)[:80]}: {error.reason}; give text in Unicode") from None
    return value


def checked_kind(name: str, value: T, kind: type) -> T:
    """A value of the kind that it is said to be. Raises `UsageError`."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} is {repr(value)}: it must be {kind.__name__}")
    return value
