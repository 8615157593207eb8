"""The one grammar that names strategies and verifiers: `name`, or `name(parameter=value, inner=name(...))`.

Values are numbers, quoted text, true, false, none, lists in square brackets, bare words (the values of an
enumeration, or names) and calls. Text is parsed as a Python expression and read off its tree; nothing is
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
from .nearest import shown

TEXT_MAX = 4096
"""Characters of the longest text that is read."""

_HEAD = re.compile(r"\s*([A-Za-z_][\w-]*)\s*(?:\(|$)")
_WORDS = {"true": True, "false": False, "none": None}


class Call(msgspec.Struct, frozen=True):
    """A name and its arguments as they were written. A bare word is its text; a call inside is a `Call`."""

    name: str
    arguments: dict[str, Any] = {}


def head_of(text: str) -> str | None:
    """The name that `text` begins with, where it reads like a call so far: unknown names are told of before
    faults behind them."""
    match = _HEAD.match(text)
    return match[1] if match else None


def parse_call(text: str, what: str) -> Call:
    """What `text` calls; `what` ("strategy") says in errors what should be named.

    Raises `UsageError`, one line that says what would be right.
    """
    return _call(_tree(text, what), what)


def parse_value(text: str, what: str) -> Any:
    """The value that `text` writes; errors as above."""
    return _value(_tree(text, "value"), what)


def format_call(name: str, arguments: Mapping[str, str]) -> str:
    """The text of a call, its values written already."""
    return f"{name}({', '.join(f'{k}={v}' for k, v in arguments.items())})" if arguments else name


def format_value(value: Any, nested: Callable[[Any], str | None] = lambda value: None) -> str:
    """The text that reads back as `value`; `nested` writes what the grammar calls by name, and is asked
    first."""
    if (text := nested(value)) is not None:
        return text
    match value:
        case Call():
            return format_call(value.name, {k: format_value(v) for k, v in value.arguments.items()})
        case enum.Enum():
            return value.value if _is_word(value.value) else format_value(value.value)
        case bool() | None:
            return str(value).lower()
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case list() | tuple():
            return f"[{', '.join(format_value(item, nested) for item in value)}]"
    return repr(value)


def _tree(text: str, what: str) -> ast.expr:
    if len(text) > TEXT_MAX:
        raise UsageError(f"{what} of {len(text)} characters: give at most {TEXT_MAX}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{what} {shown(text)}: cannot be read; write name or name(parameter=value, ...), text in quotes"
        ) from error


def _call(node: ast.expr, what: str) -> Call:
    match node:
        case ast.Name(id=name):
            return Call(name)
        case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords):
            return Call(name, _arguments(name, keywords, what))
        case ast.Call(func=ast.Name(id=name), args=[value, *_]):
            raise UsageError(f"{what} {name}: {shown(ast.unparse(value))} has no name; write parameter=value")
    raise UsageError(f"{what} {shown(ast.unparse(node))}: write name or name(parameter=value, ...)")


def _arguments(name: str, keywords: list[ast.keyword], what: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg is None:
            raise UsageError(f"{what} {name}: ** is not part of the grammar; write parameter=value")
        if keyword.arg in arguments:
            raise UsageError(f"{what} {name}: {keyword.arg} is given twice")
        arguments[keyword.arg] = _value(keyword.value, what)
    return arguments


def _value(node: ast.expr, what: str) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=word):
            return _WORDS.get(word, word)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, what) for item in items]
        case ast.Call():
            return _call(node, what)
    raise UsageError(
        f"value {shown(ast.unparse(node))}: give a number, text, true, false, none, a word or a {what}; "
        "text that is no word takes quotes"
    )


def _is_word(value: Any) -> bool:
    """Whether an enumeration's value reads back from a bare word."""
    try:
        return isinstance(ast.parse(value, mode="eval").body, ast.Name) and value not in _WORDS
    except SyntaxError:
        return False
