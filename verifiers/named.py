"""Verifiers by name and parameters: read and checked first, made for each search."""

from collections.abc import Callable
from typing import Any, Self

import msgspec

from ..engine.errors import UsageError
from .base import Verifier
from .calls import Call, format_call, format_value, head_of, parse_call
from .parameters import (
    Field,
    Nested,
    Parameter,
    convert,
    described,
    find_field,
    keyword_fields,
    takes_nested,
    takes_several,
)
from .problem import Problem

Finder = Callable[[str], type[Any]]
"""The class of a name; raises `UsageError` for unknown ones."""


class NamedVerifier(msgspec.Struct, frozen=True):
    """A verifier that was named: its class, and the parameters that were given, as the class takes them.
    Verifiers among these are named ones too."""

    name: str
    kind: type[Any]
    parameters: dict[str, Any]

    @classmethod
    def parse(cls, text: str, find: Finder) -> Self:
        """The verifier that `text` names, as `prm(aggregation=prod)` or `all_of(of=[replay, prm])`.

        Raises `UsageError`, one line that says what would be right.
        """
        if head := head_of(text):
            find(head)
        return _named(cls, parse_call(text, "verifier"), find)

    def make(self, problem: Problem) -> Verifier:
        """A new verifier for one search of `problem`. Raises `UsageError` where it cannot check that
        problem."""
        settings = {name: _made(value, problem) for name, value in self.parameters.items()}
        if hasattr(self.kind, "for_problem"):
            return self.kind.for_problem(problem, **settings)
        return self.kind(**settings)

    def __str__(self) -> str:
        """The text that `parse` reads back, parameters at their defaults left out."""
        defaults = {field.name: field.default for field in verifier_fields(self.kind)}
        given = {k: v for k, v in self.parameters.items() if v != defaults[k]}
        return full_name(self.name, **given)


_NESTED = Nested(declared=Verifier, value=NamedVerifier, one="a verifier", many="verifiers")


def full_name(name: str, **parameters: Any) -> str:
    """A verifier's name with its parameters, as the grammar writes them: for a class's own `name`. Verifiers
    among the parameters are told by their names."""
    return format_call(name, {k: format_value(v, _verifier_name) for k, v in parameters.items()})


def verifier_fields(kind: type[Any]) -> tuple[Field, ...]:
    """The parameters of a verifier class: what its `for_problem` takes besides the problem, else what it is
    made with."""
    if hasattr(kind, "for_problem"):
        return keyword_fields(kind.for_problem)  # a bound class method: the problem comes first
    return keyword_fields(kind.__init__) if kind.__init__ is not object.__init__ else ()


def verifier_parameters(kind: type[Any]) -> tuple[Parameter, ...]:
    """The parameters of a verifier class for a person."""
    return described(verifier_fields(kind), _NESTED)


def _verifier_name(value: Any) -> str | None:
    if isinstance(value, NamedVerifier):
        return str(value)
    name = getattr(value, "name", None)
    return name if isinstance(name, str) and hasattr(value, "score") else None


def _named(cls: type[Any], call: Call, find: Finder) -> Any:
    owner, kind = f"verifier {call.name}", find(call.name)
    fields = verifier_fields(kind)
    given = {}
    for name, value in call.arguments.items():
        field = find_field(fields, owner, name, _NESTED)
        given[name] = convert(field, owner, _nested_named(cls, field, value, find), _NESTED)
    for field in fields:
        if field.default is msgspec.NODEFAULT and field.name not in given:
            (parameter,) = described([field], _NESTED)
            raise UsageError(f"{owner}: {field.name} is missing; give {parameter.expected}")
    return cls(call.name, kind, given)


def _nested_named(cls: type[Any], field: Field, value: Any, find: Finder) -> Any:
    """The value with what names verifiers in it read, where the field takes them; a bare word is a name
    there."""
    if isinstance(value, list) and takes_several(field.type, _NESTED):
        return tuple(_one_named(cls, item, find) for item in value)
    if takes_nested(field.type, _NESTED):
        return _one_named(cls, value, find)
    return value


def _one_named(cls: type[Any], value: Any, find: Finder) -> Any:
    if isinstance(value, str) and head_of(value) == value:
        value = Call(value)
    return _named(cls, value, find) if isinstance(value, Call) else value


def _made(value: Any, problem: Problem) -> Any:
    if isinstance(value, NamedVerifier):
        return value.make(problem)
    if isinstance(value, tuple) and any(isinstance(item, NamedVerifier) for item in value):
        return tuple(_made(item, problem) for item in value)
    return value
