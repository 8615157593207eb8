"""The colours of the charts: CSS variables in the page, for light and dark, and plain values in files."""

from typing import Any

import msgspec

_LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c2026",
    "muted": "#5a626e",
    "grid": "#e3e6ea",
    "s1": "#0b6bb8",
    "s2": "#c2570c",
    "s3": "#0a7d5c",
    "s4": "#a13b86",
    "s5": "#8a6a00",
    "s6": "#4b55c4",
    "s7": "#b3263a",
    "s8": "#5d6875",
    "right": "#2d8a62",
    "wrong": "#d2703a",
    "none": "#a9a29a",
    "cut": "#8b6bb1",
    "unknown": "#c9ced6",
    "failed": "#b3263a",
}
SERIES = 8
"""Colours for families of strategies; more families share them."""


class Theme(msgspec.Struct, frozen=True):
    """Where the charts' colours come from, and their font."""

    colours: dict[str, str]
    font: str

    def __getitem__(self, name: str) -> str:
        return self.colours[name]

    @property
    def series(self) -> list[str]:
        return [self[f"s{i}"] for i in range(1, SERIES + 1)]

    @property
    def config(self) -> dict[str, Any]:
        """Vega-Lite's `config`."""
        label = {
            "labelColor": self["muted"],
            "titleColor": self["ink"],
            "labelFontSize": 12,
            "titleFontSize": 12,
        }
        return {
            "background": "transparent",
            "font": self.font,
            "view": {"stroke": None},
            "text": {"color": self["ink"], "fontSize": 12},
            "rule": {"color": self["ink"]},
            "axis": {
                **label,
                "gridColor": self["grid"],
                "domainColor": self["muted"],
                "tickColor": self["muted"],
                "titleFontWeight": "normal",
                "titlePadding": 10,
                "labelLimit": 340,
            },
            "legend": {
                **label,
                "labelLimit": 340,
                "titleFontWeight": "normal",
                "symbolStrokeWidth": 2,
                "orient": "top",
                "titleOrient": "left",
                "titlePadding": 12,
                # Room for fonts wider than the one that the layout was measured with.
                "columnPadding": 34,
                "layout": {"top": {"direction": "vertical", "anchor": "start", "margin": 4}},
            },
        }


PAGE = Theme({name: f"var(--{name})" for name in _LIGHT}, "system-ui, sans-serif")
"""Follows the page's own colours."""
FILE = Theme(_LIGHT, "sans-serif")
"""Plain values, on white."""
