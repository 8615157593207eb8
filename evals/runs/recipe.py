"""A recipe: all that decides the results of a run. One recipe is one row of a paper's table, or a few."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...engine.errors import UsageError
from ...reasoning.cli.checks import checked_dtype, checked_speculate, checked_step, checked_verifier
from ...reasoning.cli.quantity import DEFAULT_BUDGET, format_budget, parse_budget
from ...verifiers.nearest import shown
from .sweep import expand_strategies

FEWEST_DIFFICULTY_SAMPLES = 16
UNLIMITED = ""
"""The budget text of what no limit is given to."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is run. Two runs of one recipe on one machine give equal records, all but `usage.engine`.

    `strategies` and `budgets` are crossed; `strategies` may hold sweeps; without budgets a model has
    tokens=16384 and a recording no limit. Every problem is solved with the seeds `seed` to
    `seed + seeds - 1`. `limit` problems are drawn from the suite by `suite_seed`. With `difficulty` samples
    per problem, at least 16, problems are also solved with the next seed, which no strategy gets, to sort
    them by difficulty. `recording` is a folder or file whose outputs are replayed in place of a model. The
    rest are arguments of `Reasoner.open` and `Reasoner.solve`.
    """

    suite: str
    strategies: tuple[str, ...]
    budgets: tuple[str, ...] = ()
    seeds: Annotated[int, Meta(ge=1, le=10_000)] = 1
    seed: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1)] | None = None
    suite_seed: Annotated[int, Meta(ge=0)] = 0
    difficulty: Annotated[int, Meta(ge=0, le=4096)] = 0
    data: str | None = None
    mapping: dict[str, str] = {}
    allow_unsandboxed: bool = False
    recording: str | None = None
    model: str = "reference"
    draft: str | None = None
    prm: str | None = None
    adapter: str | None = None
    dtype: str = "auto"
    max_model_len: Annotated[int, Meta(ge=1)] | None = None
    verifier: str | None = None
    oracle: bool = False
    system: str | None = None
    think: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    step: str | None = None
    speculate: str | None = None


def checked_recipe(recipe: Recipe) -> Recipe:
    """The recipe with its strategies and budgets written out, one each, in their own order.

    Raises `UsageError` in one line for what no run could use.
    """
    if not recipe.strategies:
        raise UsageError('no strategy given: write --strategy greedy, or --strategy "best_of_n(n=4,16)"')
    if 0 < recipe.difficulty < FEWEST_DIFFICULTY_SAMPLES:
        raise UsageError(
            f"difficulty={recipe.difficulty}: fewer than {FEWEST_DIFFICULTY_SAMPLES} samples do not sort "
            f"problems; give {FEWEST_DIFFICULTY_SAMPLES} or more, or 0"
        )
    checked_dtype(recipe.dtype)
    checked_step(recipe.step)
    checked_speculate(recipe.speculate)
    checked_verifier(recipe.verifier)
    given = recipe.budgets or ((DEFAULT_BUDGET,) if recipe.recording is None else ())
    budgets = dict.fromkeys(format_budget(parse_budget(text)) for text in given) or {UNLIMITED: None}
    return msgspec.structs.replace(
        recipe, strategies=expand_strategies(recipe.strategies), budgets=tuple(budgets)
    )


def read_recipe(path: str) -> Recipe:
    """The recipe in a TOML file, whose keys are the fields of `Recipe`; `strategy` and `budget` may stand
    for one text each.

    Raises `UsageError` in one line.
    """
    try:
        fields: dict[str, Any] = tomllib.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--recipe {path}: cannot be read ({reason}); give a TOML file") from error
    for single, several in (("strategy", "strategies"), ("budget", "budgets")):
        if single in fields and several not in fields:
            value = fields.pop(single)
            fields[several] = [value] if isinstance(value, str) else value
    try:
        return msgspec.convert(fields, Recipe)
    except msgspec.ValidationError as error:
        known = ", ".join(Recipe.__struct_fields__)
        raise UsageError(f"--recipe {path}: {error}; known are {known}") from error


def differences(old: Recipe, new: Recipe) -> Iterator[str]:
    """One phrase per field that differs."""
    for name in Recipe.__struct_fields__:
        was, is_now = getattr(old, name), getattr(new, name)
        if was != is_now:
            yield f"{name} was {_written(was)} and is now {_written(is_now)}"


def _written(value: Any) -> str:
    text = "; ".join(map(str, value)) if isinstance(value, tuple) else value
    return shown(text) if isinstance(text, str) else str(value)
