"""Charts as inline SVG for the page, and as files."""

from pathlib import Path
from typing import Any

import vl_convert
from altair.utils.schemapi import debug_mode

from ..summary.tables import Summary
from . import charts
from .theme import FILE, PAGE, Theme

PLOTS = "plots"
_PNG_SCALE = 2


def inline_charts(summary: Summary) -> dict[str, str]:
    """SVG of every chart that has something to show, by name, in the page's colours."""
    return {
        name: _inlined(vl_convert.vegalite_to_svg(spec)) for name, spec in chart_specs(summary, PAGE).items()
    }


def write_plots(summary: Summary, folder: Path) -> list[Path]:
    """Write each chart into `folder`/plots as SVG and PNG, on white, in place of an earlier report's."""
    target = folder / PLOTS
    target.mkdir(exist_ok=True)
    for old in (*target.glob("*.svg"), *target.glob("*.png")):
        old.unlink()
    written = []
    for name, spec in chart_specs(summary, FILE).items():
        svg, png = target / f"{name}.svg", target / f"{name}.png"
        drawn = vl_convert.vegalite_to_svg({**spec, "background": FILE["paper"], "padding": 16})
        svg.write_text(drawn, encoding="utf-8")
        png.write_bytes(vl_convert.svg_to_png(drawn, scale=_PNG_SCALE))
        written += [svg, png]
    return written


def chart_specs(summary: Summary, theme: Theme, *, validate: bool = False) -> dict[str, dict[str, Any]]:
    """Vega-Lite of each chart that has something to show, by name. `validate` holds it against the schema:
    that takes longer than to draw, and what is drawn differs in its data only."""
    with debug_mode(validate):
        return {
            name: {**chart.to_dict(validate=validate), "config": theme.config}
            for name, chart in _charts(summary, theme).items()
        }


def _charts(summary: Summary, theme: Theme) -> dict[str, charts.Drawn]:
    if not summary.cells:
        return {}
    made: dict[str, charts.Drawn | None] = {
        f"accuracy-{axis}": charts.frontier(summary, axis, theme) for axis in charts.AXES
    }
    made["outcomes"] = charts.outcomes(summary, theme)
    made["costs"] = charts.cost_breakdown(summary, theme)
    made["kv"] = charts.kv_sharing(summary, theme)
    made["reliability"] = charts.reliability(summary, theme)
    made["coverage"] = charts.coverage(summary, theme)
    return {name: chart for name, chart in made.items() if chart is not None}


def _inlined(svg: str) -> str:
    """Without the namespaces that HTML does not need."""
    return svg.replace(' xmlns="http://www.w3.org/2000/svg"', "").replace(
        ' xmlns:xlink="http://www.w3.org/1999/xlink"', ""
    )
