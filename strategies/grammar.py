"""Strategies by name, in the one grammar (`verifiers.calls`): `name`, or `name(k=v, inner=name(...))`."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..engine.errors import UsageError
from ..verifiers.calls import Call, format_call, format_value, head_of, parse_call, parse_value
from ..verifiers.parameters import struct_fields
from .base import Strategy
from .parameters import convert, takes_struct, takes_structs
from .registry import find_strategy, tag_of

Finder = Callable[[str], type[Strategy]]


def parse_strategy(text: str, find: Finder = find_strategy) -> Strategy:
    """The strategy that `text` names. `find` gives the class of a name and raises `UsageError` for
    unknown ones.

    Raises `UsageError`, one line that says what would be right.
    """
    if head := head_of(text):
        find(head)
    return _strategy(parse_call(text, "strategy"), find)


def format_strategy(strategy: Strategy) -> str:
    """The text that `parse_strategy` reads back as an equal strategy; parameters at their defaults are
    left out."""
    given = {field.name: getattr(strategy, field.name) for field in struct_fields(type(strategy))}
    changed = {
        field.name: format_value(given[field.name], _format_nested)
        for field in struct_fields(type(strategy))
        if given[field.name] != field.default
    }
    return format_call(tag_of(type(strategy)), changed)


def with_settings(strategy: Strategy, settings: Mapping[str, str], find: Finder = find_strategy) -> Strategy:
    """A copy with parameters replaced, as `--set n=32`; `inner.n` reaches into a nested strategy.

    A value that the grammar cannot read is taken as text. Raises `UsageError` as `parse_strategy` does.
    """
    for path, text in settings.items():
        strategy = _with_setting(strategy, path.strip().split("."), text, find)
    return strategy


def as_dict(strategy: Strategy) -> dict[str, Any]:
    """`{"type": name, parameter: value, ...}` for JSON, nested strategies alike."""
    return msgspec.to_builtins(strategy)


def _strategy(call: Call, find: Finder) -> Strategy:
    given = {field: _read(value, find) for field, value in call.arguments.items()}
    return _built(call.name, given, find)


def _read(value: Any, find: Finder) -> Any:
    """A value of the grammar with what it calls made."""
    if isinstance(value, Call):
        return _strategy(value, find)
    return [_read(item, find) for item in value] if isinstance(value, list) else value


def _built(name: str, settings: Mapping[str, Any], find: Finder) -> Strategy:
    kind = find(name)
    return kind(**{field: _converted(kind, name, field, value, find) for field, value in settings.items()})


def _converted(kind: type[Strategy], owner: str, field: str, value: Any, find: Finder) -> Any:
    """The value of one parameter; a bare word is a strategy where the parameter takes one."""
    if takes_struct(kind, field):
        value = _strategy_of(value, find)
    elif isinstance(value, list) and takes_structs(kind, field):
        value = tuple(_strategy_of(item, find) for item in value)
    return convert(kind, owner, field, value)


def _strategy_of(value: Any, find: Finder) -> Any:
    return find(value)() if isinstance(value, str) and value.isidentifier() else value


def _with_setting(strategy: Strategy, path: list[str], text: str, find: Finder) -> Strategy:
    kind, owner = type(strategy), tag_of(type(strategy))
    field, *deeper = path
    if not deeper:
        return msgspec.structs.replace(strategy, **{field: _setting(kind, owner, field, text, find)})
    inner = getattr(strategy, field, None)
    if not isinstance(inner, Strategy):
        convert(kind, owner, field, inner)
        raise UsageError(f"strategy {owner}: {field} is no strategy, so {'.'.join(path)!r} names nothing")
    return msgspec.structs.replace(strategy, **{field: _with_setting(inner, deeper, text, find)})


def _setting(kind: type[Strategy], owner: str, field: str, text: str, find: Finder) -> Any:
    try:
        value = _read(parse_value(text, "strategy"), find)
    except UsageError:
        value = text
    return _converted(kind, owner, field, value, find)


def _format_nested(value: Any) -> str | None:
    return format_strategy(value) if isinstance(value, Strategy) else None
