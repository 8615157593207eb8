"""The page of a search tree: one HTML file with everything in it, for running searches or saved graphs."""

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec

_SCRIPTS = ("shape.js", "model.js", "drawing.js", "pane.js", "live.js")


def live_page(*, keyed: bool, tokens: int | None) -> str:
    """The page that a server gives out: it asks `v1/` beside its own address for searches. `keyed`: the
    server wants an API key; `tokens` is the budget that its form begins with."""
    return _page({"keyed": keyed, "tokens": "" if tokens is None else str(tokens)})


def saved_page(graphs: Mapping[str, Any]) -> str:
    """The page of graphs as `SearchGraph.to_node_link` gives them, side by side, under their names."""
    return _page({"saved": [{"name": name, "graph": graph} for name, graph in graphs.items()]})


def _page(config: Any) -> str:
    style, script, frame = _parts()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    # The frame is split before anything is put in: what stands in a text is never taken for a place.
    filled = {"policy": policy, "style": style, "script": script, "config": embeddable(config)}
    pieces = frame.split("@")
    return "".join(filled[piece] if index % 2 else piece for index, piece in enumerate(pieces))


@functools.cache
def _parts() -> tuple[str, str, str]:
    """Style, script and frame."""
    return asset("tree.css"), "\n".join(map(asset, _SCRIPTS)), asset("tree.html")


def asset(name: str) -> str:
    """The text of a part of the page."""
    return (files(__package__ or "") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The one text that a content security policy lets in."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def embeddable(data: Any) -> str:
    """JSON that may stand inside of a script element: nothing in it ends the element."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")
