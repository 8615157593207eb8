"""The parameters of a strategy: what they take, and the one-line error where a value is something else."""

import enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from ..engine.errors import UsageError
from ..verifiers.nearest import nearest, shown


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter for a person: `type` in words, `range` as "1 to 4096" or the allowed words, "" where
    all is allowed."""

    name: str
    type: str
    default: Any
    range: str = ""

    @property
    def expected(self) -> str:
        """What to give, as the end of an error line."""
        return f"{self.range} ({self.type})" if self.range else self.type


def parameters(kind: type[msgspec.Struct]) -> tuple[Parameter, ...]:
    """The parameters of a strategy class, in their order."""
    return tuple(_parameter(field) for field in msgspec.structs.fields(kind))


def check(strategy: msgspec.Struct, owner: str) -> None:
    """Raise `UsageError` where a parameter is out of range or of another type."""
    for field in msgspec.structs.fields(strategy):
        convert(type(strategy), owner, field.name, getattr(strategy, field.name))


def convert(kind: type[msgspec.Struct], owner: str, name: str, value: Any) -> Any:
    """`value` as the field `name` of `kind` takes it; `owner` names the strategy in errors.

    Raises `UsageError` for an unknown field, and for a value of another type or out of range.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    if name not in fields:
        raise UsageError(
            f"strategy {owner}: unknown parameter {shown(name)}; {_nearest_parameters(name, kind)}"
        )
    field = fields[name]
    if _is_nested(field.type, value):
        return value
    try:
        return msgspec.convert(value, field.type)
    except (msgspec.ValidationError, TypeError) as error:
        expected = _parameter(field).expected
        raise UsageError(f"strategy {owner}: {name}={shown(value)}: give {expected}") from error


def _nearest_parameters(name: str, kind: type[msgspec.Struct]) -> str:
    own = parameters(kind)
    if not own:
        return "it takes none"
    close = nearest(name, (parameter.name for parameter in own))
    listed = [parameter for parameter in own if parameter.name in close] or list(own)
    told = "; ".join(f"{parameter.name}: {parameter.expected}" for parameter in listed)
    return f"did you mean {told}" if close else f"it takes {told}"


def takes_struct(kind: type[msgspec.Struct], name: str) -> bool:
    """Whether the field `name` of `kind` takes another struct (a strategy)."""
    return any(field.name == name and _struct_classes(field.type) for field in msgspec.structs.fields(kind))


def _is_nested(annotation: Any, value: Any) -> bool:
    """Whether the field takes a strategy and `value` is one (msgspec does not convert from a base class)."""
    return isinstance(value, msgspec.Struct) and any(
        isinstance(value, kind) for kind in _struct_classes(annotation)
    )


def _struct_classes(annotation: Any) -> list[type]:
    return [
        part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, msgspec.Struct)
    ]


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, constraints apart."""
    if get_origin(annotation) in (Union, UnionType):
        return [part for member in get_args(annotation) for part in _parts(member)]
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    return [annotation]


def _parameter(field: msgspec.structs.FieldInfo) -> Parameter:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Parameter(
        name=field.name,
        type=" or ".join(dict.fromkeys(map(_type_words, _parts(field.type)))),
        default=None if default is msgspec.NODEFAULT else default,
        range=_range_words(field.type),
    )


_WORDS = {int: "an integer", float: "a number", str: "text", bool: "true or false", type(None): "none"}


def _type_words(part: Any) -> str:
    if part in _WORDS:
        return _WORDS[part]
    if get_origin(part) is Literal:
        return "one of " + ", ".join(map(str, get_args(part)))
    if isinstance(part, type) and issubclass(part, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in part)
    if isinstance(part, type) and issubclass(part, msgspec.Struct):
        return "a strategy"
    if get_origin(part) in (tuple, list):
        return f"a list of {_type_words(get_args(part)[0])}"
    return str(part)


def _range_words(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        return next(filter(None, map(_range_words, get_args(annotation))), "")
    if get_origin(annotation) is not Annotated:
        return ""
    for meta in get_args(annotation)[1:]:
        if isinstance(meta, msgspec.Meta):
            return _bounds(meta)
    return ""


def _bounds(meta: msgspec.Meta) -> str:
    low = _limit(meta.ge, "") or _limit(meta.gt, "above ")
    high = _limit(meta.le, "") or _limit(meta.lt, "below ")
    if low and high:
        return f"{low} to {high}"
    if low:
        return low if meta.ge is None else f"{low} or more"
    return high if meta.le is None else f"{high} or less"


def _limit(bound: float | None, prefix: str) -> str:
    if bound is None:
        return ""
    return f"{prefix}{bound:g}" if isinstance(bound, float) else f"{prefix}{bound}"
