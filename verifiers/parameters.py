"""Parameters of what the grammar names: what they take, and the one-line error where a value is something
else."""

import enum
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from ..engine.errors import UsageError
from .nearest import nearest, shown


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter for a person: `type` in words, `range` as "1 to 4096" or the allowed words, "" where
    all is allowed. `required`: it must be given, and has no default."""

    name: str
    type: str
    default: Any
    range: str = ""
    required: bool = False

    @property
    def expected(self) -> str:
        """What to give, as the end of an error line."""
        return f"{self.range} ({self.type})" if self.range else self.type


class Field(NamedTuple):
    """One parameter as code declares it: an annotation with its `msgspec.Meta`, and the default
    (`msgspec.NODEFAULT`: it must be given)."""

    name: str
    type: Any
    default: Any


class Nested(NamedTuple):
    """What may be given by name inside of another: values of class `value` where an annotation says
    `declared`. `one` and `many` are its words ("a strategy", "strategies")."""

    declared: type
    value: type
    one: str
    many: str


def struct_fields(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a struct class, in their order."""
    return tuple(Field(field.name, field.type, _default(field)) for field in msgspec.structs.fields(kind))


def keyword_fields(function: Callable[..., Any], skip: int = 1) -> tuple[Field, ...]:
    """What may be given to `function` by keyword, but for its first `skip` parameters."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # an annotation that only a type checker can read says nothing here
        hints = {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    given = list(inspect.signature(function).parameters.values())[skip:]
    return tuple(
        Field(
            one.name,
            hints.get(one.name, Any),
            msgspec.NODEFAULT if one.default is inspect.Parameter.empty else one.default,
        )
        for one in given
        if one.kind in named
    )


def described(fields: Iterable[Field], nested: Nested) -> tuple[Parameter, ...]:
    """The parameters for a person."""
    return tuple(
        Parameter(
            name=field.name,
            type=" or ".join(dict.fromkeys(_type_words(part, nested) for part in _parts(field.type))),
            default=None if field.default is msgspec.NODEFAULT else field.default,
            range=_range_words(field.type),
            required=field.default is msgspec.NODEFAULT,
        )
        for field in fields
    )


def find_field(fields: Sequence[Field], owner: str, name: str, nested: Nested) -> Field:
    """The field of that name. Raises `UsageError` for an unknown one, with the nearest; `owner` ("strategy
    best_of_n") begins the line."""
    for field in fields:
        if field.name == name:
            return field
    own = described(fields, nested)
    raise UsageError(f"{owner}: unknown parameter {shown(name)}; {_nearest_parameters(name, own)}")


def convert(field: Field, owner: str, value: Any, nested: Nested) -> Any:
    """`value` as the field takes it.

    Raises `UsageError` for a value of another type or out of range; `owner` as in `find_field`.
    """
    found = _nested_value(field.type, value, nested)
    if found is not msgspec.UNSET:
        return found
    try:
        return msgspec.convert(value, _without(field.type, nested))
    except (msgspec.ValidationError, TypeError) as error:
        (expected,) = (one.expected for one in described([field], nested))
        raise UsageError(f"{owner}: {field.name}={shown(value)}: give {expected}") from error


def takes_nested(annotation: Any, nested: Nested) -> bool:
    """Whether an annotation takes one of what may be given by name."""
    return any(_declares(part, nested) for part in _parts(annotation))


def takes_several(annotation: Any, nested: Nested) -> bool:
    """Whether an annotation takes a list of what may be given by name."""
    return any(takes_nested(items, nested) for items in _listed(annotation))


def _nested_value(annotation: Any, value: Any, nested: Nested) -> Any:
    """What the annotation takes by name, where `value` is that or a list of it (msgspec converts neither from
    a base class nor to a protocol); `UNSET` for other values and annotations."""
    if _fits(annotation, value, nested):
        return value
    if isinstance(value, list | tuple):
        low, high = _lengths(annotation)
        for items in _listed(annotation):
            if low <= len(value) <= high and all(_fits(items, item, nested) for item in value):
                return tuple(value)
    return msgspec.UNSET


def _fits(annotation: Any, value: Any, nested: Nested) -> bool:
    """Whether `value` is one of the classes that the annotation takes by name."""
    kinds = [part for part in _parts(annotation) if _declares(part, nested)]
    return isinstance(value, nested.value) and any(
        kind is nested.declared or isinstance(value, kind) for kind in kinds
    )


def _listed(annotation: Any) -> list[Any]:
    """Of what an annotation takes lists."""
    return [get_args(part)[0] for part in _parts(annotation) if get_origin(part) in (tuple, list)]


def _without(annotation: Any, nested: Nested) -> Any:
    """The annotation less what is given by name: what else a value may be converted to."""
    if not takes_nested(annotation, nested) and not takes_several(annotation, nested):
        return annotation
    rest = [
        part for part in _parts(annotation) if not _declares(part, nested) and not takes_several(part, nested)
    ]
    return Union[tuple(rest)] if rest else Literal["\0"]  # noqa: UP007 - made at run time


def _declares(part: Any, nested: Nested) -> bool:
    return isinstance(part, type) and (part is nested.declared or nested.declared in part.__mro__)


def _nearest_parameters(name: str, own: Sequence[Parameter]) -> str:
    if not own:
        return "it takes none"
    close = nearest(name, (parameter.name for parameter in own))
    listed = [parameter for parameter in own if parameter.name in close] or list(own)
    told = "; ".join(f"{parameter.name}: {parameter.expected}" for parameter in listed)
    return f"did you mean {told}" if close else f"it takes {told}"


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, constraints apart."""
    if get_origin(annotation) in (Union, UnionType):
        return [part for member in get_args(annotation) for part in _parts(member)]
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    return [annotation]


_WORDS = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "none",
    Any: "anything",
}


def _type_words(part: Any, nested: Nested) -> str:
    if part in _WORDS:
        return _WORDS[part]
    if _declares(part, nested):
        return nested.one
    if get_origin(part) is Literal:
        return "one of " + ", ".join(map(str, get_args(part)))
    if isinstance(part, type) and issubclass(part, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in part)
    if get_origin(part) in (tuple, list):
        item = get_args(part)[0]
        return f"a list of {nested.many if _declares(item, nested) else _type_words(item, nested)}"
    return str(part)


def _range_words(annotation: Any) -> str:
    items = "characters" if str in _parts(annotation) else "of them"
    return next(filter(None, (_bounds(meta, items) for meta in _metas(annotation))), "")


def _metas(annotation: Any) -> list[msgspec.Meta]:
    if get_origin(annotation) in (Union, UnionType):
        return [meta for member in get_args(annotation) for meta in _metas(member)]
    if get_origin(annotation) is Annotated:
        return [meta for meta in get_args(annotation)[1:] if isinstance(meta, msgspec.Meta)]
    return []


def _lengths(annotation: Any) -> tuple[float, float]:
    """How few and how many items a list may have."""
    metas = _metas(annotation)
    low = max((meta.min_length for meta in metas if meta.min_length is not None), default=0)
    return low, min((meta.max_length for meta in metas if meta.max_length is not None), default=float("inf"))


def _bounds(meta: msgspec.Meta, items: str) -> str:
    if meta.min_length is not None or meta.max_length is not None:
        return f"{_between(_limit(meta.min_length, ''), _limit(meta.max_length, ''))} {items}"
    low = _limit(meta.ge, "") or _limit(meta.gt, "above ")
    high = _limit(meta.le, "") or _limit(meta.lt, "below ")
    return _between(low, high, open_low=meta.ge is None, open_high=meta.le is None)


def _between(low: str, high: str, *, open_low: bool = False, open_high: bool = False) -> str:
    if low and high:
        return f"{low} to {high}"
    if low:
        return low if open_low else f"{low} or more"
    return high if open_high or not high else f"{high} or less"


def _limit(bound: float | None, prefix: str) -> str:
    if bound is None:
        return ""
    return f"{prefix}{bound:g}" if isinstance(bound, float) else f"{prefix}{bound}"
