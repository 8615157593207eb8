"""One grammar that names a strategy everywhere: `name`, or `name(k=v, inner=name(...))`.

Values are numbers, quoted text, true, false, none, lists in square brackets, bare words (the values of an
enumeration) and strategies. Text is parsed as a Python expression and read off its tree; nothing is
evaluated.
"""

import ast
import enum
import math
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..engine.errors import UsageError
from ..verifiers.nearest import shown
from .base import Strategy
from .parameters import convert, takes_struct
from .registry import find_strategy, tag_of

TEXT_MAX = 4096
"""Characters of the longest text that is read."""

Finder = Callable[[str], type[Strategy]]

_HEAD = re.compile(r"\s*([A-Za-z_][\w-]*)\s*(?:\(|$)")
_WORDS = {"true": True, "false": False, "none": None}


def parse_strategy(text: str, find: Finder = find_strategy) -> Strategy:
    """The strategy that `text` names. `find` gives the class of a name and raises `UsageError` for
    unknown ones.

    Raises `UsageError`, one line that says what would be right.
    """
    if head := _HEAD.match(text):
        find(head[1])
    return _strategy(_tree(text, "strategy"), find)


def format_strategy(strategy: Strategy) -> str:
    """The text that `parse_strategy` reads back as an equal strategy; parameters at their defaults are
    left out."""
    parts = [
        f"{field.name}={_format_value(getattr(strategy, field.name))}"
        for field in msgspec.structs.fields(strategy)
        if getattr(strategy, field.name) != _default(field)
    ]
    name = tag_of(type(strategy))
    return f"{name}({', '.join(parts)})" if parts else name


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


def _tree(text: str, what: str) -> ast.expr:
    if len(text) > TEXT_MAX:
        raise UsageError(f"{what} of {len(text)} characters: give at most {TEXT_MAX}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{what} {shown(text)}: cannot be read; write name or name(parameter=value, ...)"
        ) from error


def _strategy(node: ast.expr, find: Finder) -> Strategy:
    match node:
        case ast.Name(id=name):
            return _built(name, {}, find)
        case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords):
            return _built(name, _settings(name, keywords, find), find)
        case ast.Call(func=ast.Name(id=name), args=[value, *_]):
            raise UsageError(
                f"strategy {name}: {shown(ast.unparse(value))} has no name; write parameter=value"
            )
    raise UsageError(f"strategy {shown(ast.unparse(node))}: write name or name(parameter=value, ...)")


def _settings(name: str, keywords: list[ast.keyword], find: Finder) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg is None:
            raise UsageError(f"strategy {name}: ** is not part of the grammar; write parameter=value")
        if keyword.arg in settings:
            raise UsageError(f"strategy {name}: {keyword.arg} is given twice")
        settings[keyword.arg] = _value(keyword.value, find)
    return settings


def _value(node: ast.expr, find: Finder) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=word):
            return _WORDS.get(word, word)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, find) for item in items]
        case ast.Call():
            return _strategy(node, find)
    raise UsageError(
        f"value {shown(ast.unparse(node))}: give a number, text, true, false, none, a word or a strategy"
    )


def _built(name: str, settings: Mapping[str, Any], find: Finder) -> Strategy:
    kind = find(name)
    return kind(**{field: _converted(kind, name, field, value, find) for field, value in settings.items()})


def _converted(kind: type[Strategy], owner: str, field: str, value: Any, find: Finder) -> Any:
    """The value of one parameter; a bare word is a strategy where the parameter takes one."""
    if isinstance(value, str) and value.isidentifier() and takes_struct(kind, field):
        value = find(value)()
    return convert(kind, owner, field, value)


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
        value = _value(_tree(text, "value"), find)
    except UsageError:
        value = text
    return _converted(kind, owner, field, value, find)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _format_value(value: Any) -> str:
    match value:
        case Strategy():
            return format_strategy(value)
        case enum.Enum():
            return _format_value(value.value) if not _is_word(value.value) else value.value
        case bool() | None:
            return str(value).lower()
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case list() | tuple():
            return f"[{', '.join(map(_format_value, value))}]"
    return repr(value)


def _is_word(value: Any) -> bool:
    """Whether an enumeration's value reads back from a bare word."""
    try:
        return isinstance(ast.parse(value, mode="eval").body, ast.Name) and value not in _WORDS
    except SyntaxError:
        return False
