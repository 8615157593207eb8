"""Benchmark results as lines and as JSON."""

from collections.abc import Sequence

import msgspec

from .best_of_n import Measured


def render_line(result: Measured) -> str:
    """One line of plain text."""
    work = result.workload
    mode = ", deterministic" if result.deterministic else ""
    line = (
        f"{result.model} ({result.dtype}{mode}): best of {work.samples}, prompt {work.prompt_tokens}, "
        f"new {work.new_tokens}, {result.threads} thread(s): {result.tokens_per_s:.0f} tokens/s"
    )
    if result.peer is None:
        return line
    return f"{line}; {result.peer} {result.peer_tokens_per_s:.0f} tokens/s; ratio {result.ratio:.2f}"


def render_json(results: Sequence[Measured]) -> str:
    """One JSON object."""
    return msgspec.json.encode({"bench": "best-of-n", "results": list(results)}).decode()
