"""The page: one HTML file with everything in it."""

import functools
import re
from importlib.resources import files
from typing import Any

import jinja2
import msgspec

from ...reasoning.treepage import asset, embeddable
from ..runs.recipe import Recipe
from ..statistics.intervals import Estimate
from ..summary.tables import Difficulty, Summary
from . import numbers
from .charts import AXES, kv_saved, reliability_row
from .drawing import inline_charts
from .samples import Samples
from .settings import setting_name

AXIS_NAMES = {"flops": "FLOPs", "tokens": "Tokens", "seconds": "Seconds", "kv": "KV"}


def render_page(summary: Summary, samples: Samples) -> str:
    """`report.html`. A pure function of its arguments."""
    return _template().render(
        summary=summary,
        samples=samples,
        index=embeddable(samples.index),
        shape=asset("shape.js"),
        charts=inline_charts(summary),
        axes=AXES,
        axis_names=AXIS_NAMES,
        recipe=_recipe_lines(summary.recipe),
        splits=[_split(split) for split in summary.difficulty],
        reach=_reach(summary),
        calibrated=reliability_row(summary),
        seeds=summary.recipe.get("seeds", 1),
        launch=summary.launches[-1] if summary.launches else None,
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_part), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters |= {
        "si": numbers.si,
        "percent": numbers.percent,
        "p": numbers.p_value,
        "points": numbers.signed_points,
        "quantity": numbers.quantity,
        "rate": numbers.rate,
        "difference": numbers.difference,
        "setting": setting_name,
        "kv_saved": kv_saved,
        "bare": _bare_interval,
    }
    environment.globals["part"] = _part
    return environment.get_template("page.html")


def _part(name: str) -> str:
    return (files(__package__ or "") / "assets" / name).read_text(encoding="utf-8")


def _bare_interval(estimate: Estimate) -> str:
    return numbers.interval(estimate, lambda value: f"{100 * value:.0f}").strip(" ()")


def _recipe_lines(recipe: dict[str, Any]) -> list[tuple[str, str]]:
    """What of the recipe is set to something else than its default, as TOML would write it."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Recipe)}
    lines = []
    for name, value in recipe.items():
        if value is not None and value not in ([], {}) and value != defaults.get(name):
            lines.append((name, msgspec.json.encode(value).decode()))
    return lines


def _split(split: Difficulty) -> dict[str, Any]:
    """A table: settings down, difficulties across."""
    levels = sorted({row.difficulty for row in split.rows}, key=_natural)
    settings = list(dict.fromkeys(map(setting_name, split.rows)))
    found = {(setting_name(row), row.difficulty): row.accuracy for row in split.rows}
    problems = {
        level: max(row.accuracy.n for row in split.rows if row.difficulty == level) for level in levels
    }
    return {
        "by": split.by,
        "oracle": split.oracle,
        "levels": [(level, problems[level]) for level in levels],
        "rows": [(name, [found.get((name, level)) for level in levels]) for name in settings],
    }


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Sorts `level 10` after `level 9`."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text) if part]


def _reach(summary: Summary) -> float:
    """How far the scale of differences has to go, in shares: a tenth at least."""
    differences = [test.comparison.difference for test in summary.tests]
    differences += [
        row.difference
        for row in (summary.equal_compute.rows if summary.equal_compute else ())
        if row.difference
    ]
    differences += [step.gain for step in summary.hull if step.gain is not None]
    ends = [abs(end) for d in differences for end in (d.low, d.high, d.value) if end is not None]
    return max((0.1, *ends))
