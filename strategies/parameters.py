"""The parameters of a strategy: what they take, and the one-line error where a value is something else."""

from typing import Any

import msgspec

from ..verifiers import parameters as declared
from ..verifiers.parameters import Field, Nested, Parameter, struct_fields

_NESTED = Nested(declared=msgspec.Struct, value=msgspec.Struct, one="a strategy", many="strategies")


def parameters(kind: type[msgspec.Struct]) -> tuple[Parameter, ...]:
    """The parameters of a strategy class, in their order."""
    return declared.described(struct_fields(kind), _NESTED)


def check(strategy: msgspec.Struct, owner: str) -> None:
    """Raise `UsageError` where a parameter is out of range or of another type."""
    for field in struct_fields(type(strategy)):
        declared.convert(field, f"strategy {owner}", getattr(strategy, field.name), _NESTED)


def convert(kind: type[msgspec.Struct], owner: str, name: str, value: Any) -> Any:
    """`value` as the field `name` of `kind` takes it; `owner` names the strategy in errors.

    Raises `UsageError` for an unknown field, and for a value of another type or out of range.
    """
    field = declared.find_field(struct_fields(kind), f"strategy {owner}", name, _NESTED)
    return declared.convert(field, f"strategy {owner}", value, _NESTED)


def takes_struct(kind: type[msgspec.Struct], name: str) -> bool:
    """Whether the field `name` of `kind` takes another struct (a strategy)."""
    return any(declared.takes_nested(field.type, _NESTED) for field in _named(kind, name))


def takes_structs(kind: type[msgspec.Struct], name: str) -> bool:
    """Whether the field `name` of `kind` takes a list of structs (strategies)."""
    return any(declared.takes_several(field.type, _NESTED) for field in _named(kind, name))


def _named(kind: type[msgspec.Struct], name: str) -> list[Field]:
    return [field for field in struct_fields(kind) if field.name == name]
