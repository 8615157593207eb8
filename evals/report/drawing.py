"""Charts as inline SVG for the page, and as files."""

from pathlib import Path
from typing import Any

import vl_convert

from ..summary.tables import Summary
from . import charts
from .theme import FILE, PAGE, Theme

PLOTS = "plots"
_PNG_SCALE = 2


def inline_charts(summary: Summary) -> dict[str, str]:
    """SVG of every chart that has something to show, by name, in the page's colours."""
    return {
        name: _inlined(vl_convert.vegalite_to_svg(_spec(chart, PAGE)))
        for name, chart in _charts(summary, PAGE).items()
    }


def write_plots(summary: Summary, folder: Path) -> list[Path]:
    """Write each chart into `folder`/plots as SVG and PNG, on white, in place of an earlier report's."""
    target = folder / PLOTS
    target.mkdir(exist_ok=True)
    for old in (*target.glob("*.svg"), *target.glob("*.png")):
        old.unlink()
    written = []
    for name, chart in _charts(summary, FILE).items():
        spec = {**_spec(chart, FILE), "background": FILE["paper"], "padding": 16}
        svg, png = target / f"{name}.svg", target / f"{name}.png"
        drawn = vl_convert.vegalite_to_svg(spec)
        svg.write_text(drawn, encoding="utf-8")
        png.write_bytes(vl_convert.svg_to_png(drawn, scale=_PNG_SCALE))
        written += [svg, png]
    return written


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


def _spec(chart: charts.Drawn, theme: Theme) -> dict[str, Any]:
    return {**chart.to_dict(), "config": theme.config}


def _inlined(svg: str) -> str:
    """Without the namespaces that HTML does not need."""
    return svg.replace(' xmlns="http://www.w3.org/2000/svg"', "").replace(
        ' xmlns:xlink="http://www.w3.org/1999/xlink"', ""
    )
