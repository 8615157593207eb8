"""Options that the benchmarks share. Cheap to import: `branchwise --help` loads it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .setting import Setting

Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="A model to measure; may be repeated.", show_default="reference"),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option("--dtype", help="float32 or bfloat16; may be repeated.", show_default="float32"),
]
Peers = Annotated[
    list[str] | None,
    typer.Option(
        "--peer",
        metavar="NAME=PYTHON",
        help="Measure beside openvino, llama.cpp, vllm or transformers, run by that interpreter; "
        "may be repeated.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads of each program.", show_default="all cores")
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Timed runs of each; medians count.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Run the deterministic mode as well: what it costs.")
]
WorkFolder = Annotated[
    Path | None,
    typer.Option(
        "--work",
        help="Folder that keeps the model in peers' forms.",
        show_default="~/.cache/branchwise/bench",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Save = Annotated[Path | None, typer.Option("--save", help="Append the results as JSON rows in this folder.")]


def read_settings(
    models: list[str] | None,
    dtypes: list[str] | None,
    peers: list[str] | None,
    threads: int | None,
    repeats: int,
    work: Path | None,
    *,
    deterministic: bool,
) -> "list[Setting]":
    """One setting per model and dtype; `UsageError` in one line for a value that cannot be."""
    from ...engine.errors import UsageError
    from .machine import core_count
    from .peer_choice import parse_peer
    from .peer_models import default_work
    from .setting import Setting

    choices = tuple(parse_peer(text) for text in peers or ())
    names = [choice.name for choice in choices]
    if len(set(names)) < len(names):
        raise UsageError(f"--peer {', '.join(names)}: give each peer once")
    for dtype in dtypes or ():
        if dtype not in ("float32", "bfloat16"):
            raise UsageError(f"--dtype {dtype}: no such type; give float32 or bfloat16")
    return [
        Setting(
            model=model,
            dtype=dtype,
            threads=threads or core_count(),
            deterministic=deterministic,
            repeats=repeats,
            peers=choices,
            work=(work or default_work()).expanduser().absolute(),
        )
        for model in models or ["reference"]
        for dtype in dtypes or ["float32"]
    ]
