"""Options that the benchmarks share. Cheap to import: `branchwise --help` loads it."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...reasoning.cli.options import count

if TYPE_CHECKING:
    from .setting import Setting

MOST_AT_ONCE = 16_384
"""Requests of one tenant that an engine takes at once."""

MOST_TOKENS = 1 << 20


def amount(option: str, help: str, *, most: int = MOST_AT_ONCE, show_default: bool | str = True) -> Any:
    """An option that takes a whole number from 1 to `most`."""
    return count(option, help, most=most, show_default=show_default)


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
    int | None, amount("--threads", "Threads of each program.", most=1024, show_default="all cores")
]
Repeats = Annotated[int, amount("--repeats", "Timed runs of each; medians count.", most=1000)]
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
    model: Models = None,
    dtype: Dtypes = None,
    peer: Peers = None,
    threads: Threads = None,
    repeats: Repeats = 3,
    deterministic: Deterministic = False,
    work: WorkFolder = None,
) -> "list[Setting]":
    """One setting per model and dtype; `UsageError` in one line for a value that cannot be. Its parameters
    are the options of every benchmark of a model."""
    from ...engine.errors import UsageError
    from .machine import core_count
    from .peer_choice import parse_peer
    from .peer_models import default_work
    from .setting import Setting

    choices = tuple(parse_peer(text) for text in peer or ())
    names = [choice.name for choice in choices]
    if len(set(names)) < len(names):
        raise UsageError(f"--peer {', '.join(names)}: give each peer once")
    for name in dtype or ():
        if name not in ("float32", "bfloat16"):
            raise UsageError(f"--dtype {name}: no such type; give float32 or bfloat16")
    folder = default_work() if work is None else work
    if work is not None or choices:
        folder = checked_folder("--work", folder)
    return [
        Setting(
            model=source,
            dtype=name,
            threads=threads or core_count(),
            deterministic=deterministic,
            repeats=repeats,
            peers=choices,
            work=folder,
        )
        for source in model or ["reference"]
        for name in dtype or ["float32"]
    ]


def checked_folder(option: str, folder: Path) -> Path:
    """`folder`, made if it is not there yet; `UsageError` in one line where nothing can be written in it."""
    from ...engine.errors import UsageError

    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UsageError(
            f"{option} {folder}: not a folder that can be written ({error.strerror}); name another one"
        ) from None
