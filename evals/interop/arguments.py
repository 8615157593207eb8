"""What other harnesses pass on as loose arguments, checked: how to open models, and how to solve on them."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ...engine.errors import UsageError
from ...reasoning.budget import Budget
from ...reasoning.cli.checks import (
    checked_device,
    checked_dtype,
    checked_speculate,
    checked_step,
    checked_verifier,
)
from ...reasoning.cli.quantity import DEFAULT_BUDGET, parse_budget, parse_bytes
from ...reasoning.cli.requests import Opening
from ...reasoning.reasoner import DEFAULT_STRATEGY
from ...strategies.grammar import parse_strategy
from ...verifiers.nearest import unknown

S = TypeVar("S", bound=msgspec.Struct)


class Solving(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `Reasoner.solve`; strategy and budget by their grammars. `seed` None draws one for each
    problem."""

    strategy: str = DEFAULT_STRATEGY
    budget: str = DEFAULT_BUDGET
    seed: Annotated[int, Meta(ge=0)] | None = None
    verifier: str | None = None
    oracle: bool = False
    system: str | None = None
    think: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    step: str | None = None
    speculate: str | None = None

    @property
    def limits(self) -> Budget:
        return parse_budget(self.budget)

    def options(self) -> dict[str, Any]:
        """As `Reasoner.solve` takes them."""
        return {**msgspec.structs.asdict(self), "budget": self.limits}


def read_arguments(given: Mapping[str, Any]) -> tuple[Opening, Solving]:
    """Sort loose arguments, values perhaps still as text (`kv_memory` as "2GiB"), by what they are for; None
    means not given.

    Raises `UsageError` in one line for a name or a value that is wrong.
    """
    known = {*Opening.__struct_fields__, *Solving.__struct_fields__}
    fields = {name: value for name, value in given.items() if value is not None}
    for name in fields:
        if name not in known:
            raise UsageError(unknown("argument", name, known))
    if isinstance(size := fields.get("kv_memory"), str):
        fields["kv_memory"] = parse_bytes(size)
    opening, solving = _converted(fields, Opening), _converted(fields, Solving)
    parse_strategy(solving.strategy)
    parse_budget(solving.budget)
    checked_verifier(solving.verifier)
    checked_step(solving.step)
    checked_speculate(solving.speculate)
    checked_device(opening.device)
    checked_dtype(opening.dtype)
    return opening, solving


def _converted(fields: Mapping[str, Any], into: type[S]) -> S:
    own = {name: value for name, value in fields.items() if name in into.__struct_fields__}
    try:
        return msgspec.convert(own, into, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"argument {str(error).replace(' - at `$.', ': ').rstrip('`')}") from error
