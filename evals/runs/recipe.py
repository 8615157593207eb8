"""A recipe: all that decides the results of a run. One recipe is one row of a paper's table, or a few."""

import tomllib
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...reasoning.cli.checks import checked_dtype, checked_speculate, checked_step, checked_verifier
from ...reasoning.cli.quantity import DEFAULT_BUDGET, format_budget, parse_budget
from ...verifiers.nearest import shown, unknown
from .sweep import expand_strategies

FEWEST_DIFFICULTY_SAMPLES = 16
MOST_SPENT = 10**30
"""No limit of a budget reaches this."""
_OF_A_MODEL = frozenset({
    "data", "mapping", "allow_unsandboxed", "model", "draft", "prm", "adapter", "dtype", "max_model_len",
    "verifier", "system", "think", "temperature", "max_tokens", "step", "speculate",
})  # fmt: skip
"""What the recipe of a replay has no use for."""
UNLIMITED = ""
"""The budget text of what no limit is given to."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is run. Two runs of one recipe on one machine give equal records, all but `usage.engine`.

    `strategies` and `budgets` are crossed; `strategies` may hold sweeps; without budgets a model has
    tokens=16384 and a recording no limit. Every problem is solved with the seeds `seed` to
    `seed + seeds - 1`. `limit` problems are drawn from the suite by `suite_seed`. With `difficulty` samples
    per problem, at least 16, problems are also solved with the next seed, which no strategy gets, to sort
    them by difficulty. `recording` is a folder or file whose outputs are replayed in place of a model, and
    `filter` whose answers count where lm-eval recorded those of several filters. The rest are arguments of
    `Reasoner.open` and `Reasoner.solve`.
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
    filter: str | None = None
    model: str = "reference"
    draft: str | None = None
    prm: str | None = None
    judge: str | None = None
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
    if recipe.filter is not None and recipe.recording is None:
        raise UsageError(f"--filter {recipe.filter}: is for recorded outputs; give --replay PATH with it")
    _check_replay(recipe)
    checked_dtype(recipe.dtype)
    checked_step(recipe.step)
    checked_speculate(recipe.speculate)
    checked_verifier(recipe.verifier)
    given = recipe.budgets or ((DEFAULT_BUDGET,) if recipe.recording is None else ())
    budgets = dict.fromkeys(map(_budget, given)) or {UNLIMITED: None}
    return msgspec.structs.replace(
        recipe, strategies=expand_strategies(recipe.strategies), budgets=tuple(budgets)
    )


def _budget(text: str) -> str:
    """A budget as its grammar writes it."""
    budget = parse_budget(text)
    for name, value in msgspec.structs.asdict(budget).items():
        if value is not None and value >= MOST_SPENT:
            raise UsageError(
                f"budget {name}={value:.3g}: more than any run could spend; leave {name} out for no limit"
            )
    return format_budget(budget)


def _check_replay(recipe: Recipe) -> None:
    """Refuse what a recording could not follow: it would look as if it had been."""
    if recipe.recording is None:
        return
    for field in msgspec.structs.fields(Recipe):
        value = getattr(recipe, field.name)
        if field.name in _OF_A_MODEL and value not in (field.default, {}):
            raise UsageError(
                f"{field.name}={_written(value)}: a replay of {recipe.recording} runs no model and reads no "
                "suite; leave it out"
            )


def read_recipe(path: str) -> Recipe:
    """The recipe in a TOML file, whose keys are the fields of `Recipe`; `strategy` and `budget` may stand
    for one text each.

    Raises `UsageError` in one line.
    """
    try:
        fields: dict[str, Any] = tomllib.loads(user_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--recipe {path}: cannot be read ({reason}); give a TOML file") from error
    for single, several in (("strategy", "strategies"), ("budget", "budgets")):
        if single in fields and several in fields:
            raise UsageError(f"--recipe {path}: has {single} and {several}; write all into {several}")
        if single in fields:
            value = fields.pop(single)
            fields[several] = [value] if isinstance(value, str) else value
    for name in fields:
        if name not in Recipe.__struct_fields__:
            raise UsageError(f"--recipe {path}: {unknown('field', name, Recipe.__struct_fields__)}")
    try:
        return msgspec.convert(fields, Recipe)
    except msgspec.ValidationError as error:
        raise UsageError(f"--recipe {path}: {error}; see evals/runs/recipe.py for all fields") from error


def differences(old: Recipe, new: Recipe) -> Iterator[str]:
    """One phrase per field that differs."""
    for name in Recipe.__struct_fields__:
        was, is_now = getattr(old, name), getattr(new, name)
        if was != is_now:
            yield f"{name} was {_written(was)} and is now {_written(is_now)}"


def _written(value: Any) -> str:
    text = "; ".join(map(str, value)) if isinstance(value, tuple) else value
    return shown(text) if isinstance(text, str) else str(value)
