"""Benchmark results as lines and as JSON."""

from collections.abc import Sequence

import msgspec

from .result import Measured, Result


def render(result: Result) -> str:
    """Lines of plain text: what was measured, then one line per program."""
    work = result.work
    sizes = ", ".join(f"{name} {value:g}" for name, value in work.sizes.items())
    mode = ", deterministic" if work.deterministic else ""
    lines = [f"{work.title}: {work.model} ({work.dtype}{mode}), {sizes}, {work.threads} thread(s)"]
    lines += [_line(measured) for measured in (result.ours, *result.peers)]
    if result.bound_tokens_per_s is not None:
        lines.append(f"  matrix products alone: {result.bound_tokens_per_s:.0f} tokens_per_s")
    return "\n".join(lines)


def _line(measured: Measured) -> str:
    figures = ", ".join(f"{name} {number(value)}" for name, value in measured.figures.items())
    ratio = "" if measured.ratio is None else f"; ratio {measured.ratio:.2f}"
    return f"  {measured.name}: {figures}{ratio}"


def number(value: float) -> str:
    """Three significant digits, whole numbers in full."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def render_json(results: Sequence[Result]) -> str:
    """One JSON object. The engine's own figures of a single result stand at its top as well."""
    document: dict[str, object] = {"bench": results[0].work.bench, "results": list(results)}
    if len(results) == 1:
        document |= results[0].ours.figures
    return msgspec.json.encode(document).decode()
