"""From the options of a command that runs a suite to a checked recipe, and to its run."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...reasoning.cli.checks import check_sources, checked_device
from ...reasoning.cli.quantity import parse_pairs
from ...reasoning.cli.requests import Opening
from .machine import Machine
from .options import RunOptions
from .recipe import Recipe, checked_recipe, read_recipe

_OPTIONS = {"suite": "SUITE", "strategies": "--strategy", "budgets": "--budget", "recording": "--replay"}


def recipe_from(given: Mapping[str, Any], file: str | None) -> Recipe:
    """The recipe that the options name (None: not given), or the file's.

    Raises `UsageError` in one line.
    """
    fields = {name: value for name, value in given.items() if value is not None and value != []}
    if file is not None:
        if fields:
            options = ", ".join(_OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in fields)
            raise UsageError(f"--recipe {file}: given together with {options}; put it into the recipe")
        return checked_recipe(_located(read_recipe(file)))
    if "mapping" in fields:
        fields["mapping"] = dict(
            pair
            for text in fields["mapping"]
            for pair in parse_pairs(text, what="--map", example="problem=question")
        )
    if "recording" in fields:
        if "suite" in fields:
            raise UsageError(
                f"--replay {fields['recording']}: brings its own problems; leave {fields['suite']!r} out"
            )
        fields["suite"] = Path(fields["recording"]).name
    if "suite" not in fields:
        raise UsageError(
            "no suite given: write branchwise eval countdown ..., --replay PATH or --recipe FILE"
        )
    for name in ("strategies", "budgets"):
        fields[name] = tuple(fields.get(name, ()))
    return checked_recipe(_located(Recipe(**fields)))


def run_recipe(recipe: Recipe, opening: Opening, run: RunOptions, *, ray: str | None = None) -> int:
    """Run it on the machine that `opening` names, and return the exit status.

    Raises `UsageError` in one line, before anything is loaded where it can.
    """
    if recipe.recording is None:
        check_sources(recipe.model, recipe.draft, recipe.prm, recipe.judge)
    elif ray is not None:
        raise UsageError(f"--ray {ray}: a replay runs no model; leave it out")
    checked_device(opening.device)
    if not run.out.strip():
        raise UsageError('--out "": names no folder; give one, such as --out out')
    machine = Machine.of(opening, parallel=run.parallel, ray=ray)
    # Behind this stand torch and transformers: whatever was refused above cost none of their seconds.
    from .launch import launch

    return anyio.run(partial(launch, recipe, user_path(run.out), machine, resume=run.resume))


def _located(recipe: Recipe) -> Recipe:
    """Paths as absolute ones: a run may be resumed from another folder."""

    def absolute(path: str | None) -> str | None:
        found = user_path(path or "")
        return str(found.resolve()) if path is not None and found.exists() else path

    return msgspec.structs.replace(recipe, data=absolute(recipe.data), recording=absolute(recipe.recording))
