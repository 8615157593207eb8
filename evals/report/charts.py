"""The charts of a summary, as Altair charts in the colours of a theme."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from ..statistics.compute import Point, pareto_hull
from ..statistics.intervals import Estimate
from ..summary.equal_compute import family_of
from ..summary.tables import OUTCOMES, CellRow, Summary, VerifierRow
from ..summary.verifiers import BASE
from .numbers import percent, quantity, rate, si
from .settings import label_of, setting_name
from .theme import Theme

Drawn = alt.Chart | alt.LayerChart | alt.FacetChart
AXES = {
    "flops": "logical FLOPs per problem",
    "tokens": "committed tokens per problem",
    "seconds": "wall-clock seconds per problem",
    "kv": "peak KV positions of the policy per problem",
}
"""What compute is measured in, the most comparable first."""
_WIDTH, _HEIGHT, _BAR = 900, 380, 17
_LETTER = 7.2
"""Width of a letter of a label in a wide font, in pixels."""
_KINDS: tuple[str, ...] = (
    "prefill",
    "decode, kept",
    "decode, discarded",
    "draft",
    "verify",
    "cached (not computed)",
)


def frontier(summary: Summary, axis: str, theme: Theme) -> Drawn | None:
    """Accuracy against mean cost in log scale, with intervals both ways and the Pareto hull; None where fewer
    than one setting has a known cost above 0. Oracles are hollow and dashed, off the hull."""
    rows = [_point(row, axis) for row in summary.cells]
    points = [point for point in rows if point is not None]
    if not points:
        return None
    hull = _hull(points)
    for place, point in enumerate(points):
        # Of settings at one place all are seen: the earlier ones stand out behind the later.
        point["size"] = 85 + 130 * sum(_same_place(point, later) for later in points[place + 1 :])
    lows = [p["cost_low"] for p in points if p["cost_low"] > 0] + [p["cost"] for p in points]
    domain = [min(lows) / 1.25, max(p["cost_high"] for p in points) * 1.6]
    for point in points:  # an interval that reaches 0 ends at the edge of the log scale
        point["cost_low"] = max(point["cost_low"], domain[0])
    scale = alt.Scale(type="log", domain=domain, nice=False)
    x = alt.X("cost:Q", title=AXES[axis], scale=scale, axis=_numbers(values=_log_ticks(*domain)))
    floor = max(0.0, min(p["low"] for p in points) - 0.03)
    ceiling = min(1.0, max(p["high"] for p in points) + 0.03)
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[floor, ceiling]), axis=_percents(6))
    families = list(dict.fromkeys(p["family"] for p in points))
    budgets = list(dict.fromkeys(p["budget"] for p in points))
    colour = alt.Color(
        "family:N",
        scale=alt.Scale(domain=families, range=_cycled(theme.series, len(families))),
        legend=_legend("strategy", families),
    )
    shape = alt.Shape(
        "budget:N",
        scale=alt.Scale(domain=budgets, range=["circle", "square", "triangle-up", "diamond", "cross"]),
        legend=_legend("budget", budgets, symbolFillColor=theme["muted"], symbolStrokeColor=theme["muted"]),
    )
    dash = alt.condition("datum.oracle", alt.value([4, 3]), alt.value([1, 0]))
    base = alt.Chart(alt.Data(values=points)).encode(color=colour)
    across = base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(
        x=alt.X("cost_low:Q"), x2="cost_high:Q", y=y, strokeDash=dash
    )
    upright = base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(
        x=x, y="low:Q", y2="high:Q", strokeDash=dash
    )
    size = alt.Size("size:Q", scale=None, legend=None)
    placed = base.encode(x=x, y=y, shape=shape, size=size, description="description:N")
    usable = placed.mark_point(filled=True, opacity=1, stroke=theme["paper"], strokeWidth=1)
    oracles = placed.mark_point(filled=False, opacity=1, strokeWidth=2, strokeDash=[3, 2])
    marks = (usable.transform_filter("!datum.oracle"), oracles.transform_filter("datum.oracle"))
    line = (
        alt.Chart(alt.Data(values=hull))
        .mark_line(color=theme["muted"], strokeWidth=1.5)
        .encode(x=x, y=y, order=alt.Order("cost:Q"))
    )
    named = alt.Chart(alt.Data(values=hull)).encode(x=x, y=y, text="label:N")
    where = {"align": "left", "baseline": "bottom", "dx": 9, "dy": -8, "fontSize": 12}
    halo = named.mark_text(**where, color=theme["paper"], stroke=theme["paper"], strokeWidth=4)
    text = named.mark_text(**where, color=theme["ink"])
    layers = alt.layer(line, across, upright, *marks, halo, text)
    return layers.properties(width=_WIDTH, height=_HEIGHT)


def outcomes(summary: Summary, theme: Theme) -> Drawn | None:
    """What became of the samples of each setting, in shares."""
    names = ("right", "wrong", "none", "cut", "unknown", "failed")
    values = [
        {
            "setting": setting_name(row),
            "kind": kind,
            "place": place,
            "value": row.outcomes[kind],
            "description": f"{setting_name(row)}: {percent(row.outcomes[kind])} {kind}",
        }
        for row in summary.cells
        for place, kind in enumerate(OUTCOMES)
    ]
    seen = [kind for kind in OUTCOMES if any(v["value"] for v in values if v["kind"] == kind)]
    colours = [theme[name] for kind, name in zip(OUTCOMES, names, strict=True) if kind in seen]
    scale = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("value:Q", title="share of samples", axis=_percents(10), scale=scale)
    return _bars(summary, values, seen, colours, x, theme)


def cost_breakdown(summary: Summary, theme: Theme) -> Drawn | None:
    """Mean positions per sample by kind of work."""
    values = [value for row in summary.cells for value in _cost_values(row)]
    seen = [kind for kind in _KINDS if any(v["value"] for v in values if v["kind"] == kind)]
    colours = dict(zip(_KINDS, (theme[c] for c in ("s5", "s1", "unknown", "s4", "s3", "none")), strict=True))
    x = alt.X("value:Q", title="mean positions per sample", axis=_numbers(tickCount=7))
    return _bars(summary, values, seen, [colours[kind] for kind in seen], x, theme)


def kv_sharing(summary: Summary, theme: Theme) -> Drawn | None:
    """Peak KV positions as held, and as they would be if no prefix were shared."""
    values = []
    for row in summary.cells:
        saved = kv_saved(row)
        if saved is None or row.kv_held is None or row.kv_unshared is None:
            continue
        description = (
            f"{setting_name(row)}: {quantity(row.kv_held)} held, {quantity(row.kv_unshared)} unshared, "
            f"{percent(saved)} saved"
        )
        values.append(
            {
                "setting": setting_name(row),
                "held": row.kv_held.value,
                "unshared": row.kv_unshared.value,
                "saved": f"{100 * saved:.0f} % saved",
                "description": description,
            }
        )
    if not values:
        return None
    farthest = max(v["unshared"] for v in values) * 1.16
    scale = alt.Scale(domain=[0, farthest], nice=False)
    title = "peak KV positions of all models: held (filled), without sharing (outline)"
    base = alt.Chart(alt.Data(values=values)).encode(y=_setting_axis(summary))
    without = base.mark_bar(fillOpacity=0, stroke=theme["s1"], strokeWidth=1, height=_BAR - 4).encode(
        x=alt.X("unshared:Q", title=title, scale=scale, axis=_numbers(tickCount=7)),
        description="description:N",
    )
    held = base.mark_bar(color=theme["s1"], height=_BAR - 4).encode(x="held:Q", description="description:N")
    text = base.mark_text(align="left", dx=6, color=theme["muted"]).encode(x="unshared:Q", text="saved:N")
    return alt.layer(without, held, text).properties(width=_bar_width(summary), height=alt.Step(_BAR + 9))


def reliability(summary: Summary, theme: Theme) -> Drawn | None:
    """Share of right candidates against the verifier's score; None where every score is a proven verdict."""
    chosen = reliability_row(summary)
    if chosen is None:
        return None
    values = [
        {
            "score": b.mean_score,
            "right": b.right,
            "low": b.low,
            "high": b.high,
            "description": f"score {b.mean_score:.2f}: {percent(b.right)} right of {b.n:,}",
        }
        for b in chosen.calibration
    ]
    unit = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("score:Q", title="verifier's score (mean of a bin)", scale=unit, axis=alt.Axis(tickCount=5))
    y = alt.Y("right:Q", title="share of right candidates", scale=unit, axis=_percents(5))
    base = alt.Chart(alt.Data(values=values))
    perfect = (
        alt.Chart(alt.Data(values=[{"score": 0, "right": 0}, {"score": 1, "right": 1}]))
        .mark_line(color=theme["muted"], strokeWidth=1, opacity=0.7)
        .encode(x=x, y=y)
    )
    bars = base.mark_rule(color=theme["s1"], strokeWidth=1.5, opacity=0.6).encode(x=x, y="low:Q", y2="high:Q")
    marks = base.mark_point(color=theme["s1"], filled=True, size=70, opacity=1).encode(
        x=x, y=y, description="description:N"
    )
    line = base.mark_line(color=theme["s1"], strokeWidth=1.5).encode(x=x, y=y)
    return alt.layer(perfect, line, bars, marks).properties(width=320, height=300)


def reliability_row(summary: Summary) -> VerifierRow | None:
    """Whose calibration is drawn: the base samples, which are not selected, else the row with most scores."""
    rows = [row for row in summary.verifiers if not row.sound and row.calibration]
    return max(rows, key=lambda row: (row.strategy == BASE, row.scored), default=None)


def coverage(summary: Summary, theme: Theme) -> Drawn | None:
    """pass@k of the base samples: dashed, since only an oracle could reach it."""
    values = [
        {"k": c.k, "rate": c.pass_at_k.value, "low": c.pass_at_k.low, "high": c.pass_at_k.high,
         "description": f"pass@{c.k}: {rate(c.pass_at_k)}"}
        for c in summary.coverage
    ]  # fmt: skip
    if len(values) < 2:
        return None
    ticks = [v["k"] for v in values]
    scale = alt.Scale(type="log", base=2, domain=[ticks[0] / 1.15, ticks[-1] * 1.15], nice=False)
    x = alt.X("k:Q", title="samples, k", scale=scale, axis=alt.Axis(values=ticks, format="d"))
    y = alt.Y("rate:Q", title="pass@k (oracle)", scale=alt.Scale(domain=[0, 1]), axis=_percents(5))
    base = alt.Chart(alt.Data(values=values))
    band = base.mark_area(color=theme["s6"], opacity=0.12).encode(x=x, y="low:Q", y2="high:Q")
    line = base.mark_line(color=theme["s6"], strokeDash=[5, 4], strokeWidth=2).encode(x=x, y=y)
    marks = base.mark_point(color=theme["s6"], size=60, strokeWidth=2).encode(
        x=x, y=y, description="description:N"
    )
    return alt.layer(band, line, marks).properties(width=320, height=300)


def kv_saved(row: CellRow) -> float | None:
    """The share of peak KV that sharing prefixes saved."""
    if row.kv_held is None or row.kv_unshared is None or not row.kv_unshared.value > 0:
        return None
    return 1 - row.kv_held.value / row.kv_unshared.value


def _point(row: CellRow, axis: str) -> dict[str, Any] | None:
    cost: Estimate | None = getattr(row, axis)
    if cost is None or not cost.value > 0:
        return None
    low = cost.value if cost.low is None else cost.low
    high = cost.value if cost.high is None else cost.high
    accuracy = row.accuracy
    oracle = " (oracle, not ranked)" if row.oracle else ""
    return {
        "family": family_of(row.strategy),
        "budget": row.budget or "no limit",
        "label": label_of(row.strategy),
        "cost": cost.value,
        "cost_low": low,
        "cost_high": high,
        "accuracy": accuracy.value,
        "low": accuracy.value if accuracy.low is None else accuracy.low,
        "high": accuracy.value if accuracy.high is None else accuracy.high,
        "oracle": row.oracle,
        "description": f"{setting_name(row)}{oracle}: {rate(accuracy)} at {quantity(cost)} {AXES[axis]}",
    }


def _hull(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    ranked = {Point(p["cost"], p["accuracy"]): p for p in reversed(points) if not p["oracle"]}
    return [ranked[point] for point in pareto_hull(ranked)]


def _same_place(point: dict[str, Any], other: dict[str, Any]) -> bool:
    return point["accuracy"] == other["accuracy"] and abs(math.log(point["cost"] / other["cost"])) < 0.01


def _cost_values(row: CellRow) -> list[dict[str, Any]]:
    costs = row.mean_costs
    decode, discarded = costs.get("decode"), costs.get("discarded")
    committed = None if row.tokens is None or not row.tokens.value > 0 else row.tokens.value
    wasted = None
    if decode is not None and discarded is not None and committed is not None:
        # A branch's first token comes of a prefilled row: the shares are those of committed tokens.
        wasted = decode * min(1.0, discarded / committed)
    figures = {
        "prefill": costs.get("prefill"),
        "decode, kept": decode if decode is None or wasted is None else decode - wasted,
        "decode, discarded": wasted,
        "draft": costs.get("draft"),
        "verify": costs.get("verify"),
        "cached (not computed)": costs.get("cached"),
    }
    name = setting_name(row)
    return [
        {
            "setting": name,
            "kind": kind,
            "place": place,
            "value": value,
            "description": f"{name}: {si(value)} {kind}",
        }
        for place, (kind, value) in enumerate(figures.items())
        if value is not None
    ]


def _bars(
    summary: Summary,
    values: list[dict[str, Any]],
    kinds: list[str],
    colours: list[str],
    x: alt.X,
    theme: Theme,
) -> Drawn | None:
    """Stacked bars, one for each setting; None where there is nothing to stack."""
    if not kinds:
        return None
    shown = [value for value in values if value["value"]]
    chart = (
        alt.Chart(alt.Data(values=shown))
        .mark_bar(height=_BAR)
        .encode(
            y=_setting_axis(summary),
            x=x,
            color=alt.Color(
                "kind:N", scale=alt.Scale(domain=kinds, range=colours), legend=_legend(None, kinds)
            ),
            order=alt.Order("place:O"),
            description="description:N",
        )
    )
    return chart.properties(width=_bar_width(summary), height=alt.Step(_BAR + 9))


def _bar_width(summary: Summary) -> float:
    return max(360.0, _WIDTH + 50 - _label_room(summary))


def _label_room(summary: Summary) -> float:
    return min(340.0, _LETTER * max(len(setting_name(row)) for row in summary.cells)) + 8


def _setting_axis(summary: Summary) -> alt.Y:
    names = [setting_name(row) for row in summary.cells]
    axis = alt.Axis(ticks=False, domain=False, labelPadding=8, minExtent=_label_room(summary))
    return alt.Y("setting:N", title=None, sort=names, axis=axis)


def _legend(title: str | None, names: Sequence[str], **more: Any) -> alt.Legend:
    per_row = max(1, min(len(names), int(_WIDTH / (_LETTER * max(map(len, names)) + 60))))
    return alt.Legend(title=title, columns=per_row, symbolOpacity=1, **more)


def _numbers(**more: Any) -> alt.Axis:
    return alt.Axis(labelExpr="format(datum.value, '~s')", labelOverlap="greedy", **more)


def _percents(ticks: int) -> alt.Axis:
    return alt.Axis(labelExpr="format(100 * datum.value, '.0f') + ' %'", tickCount=ticks)


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten within [low, high]; powers only where those are more than 12."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [t for power in powers for digit in (1, 2, 5) if low <= (t := digit * 10.0**power) <= high]
    return ticks if len(ticks) <= 12 else [10.0**power for power in powers if low <= 10.0**power <= high]


def _cycled(colours: Sequence[str], count: int) -> list[str]:
    return [colours[i % len(colours)] for i in range(count)]
