"""`branchwise bench`: measurements that anyone can repeat."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    AsJson,
    Deterministic,
    Dtypes,
    Models,
    Peers,
    Repeats,
    Save,
    Threads,
    WorkFolder,
    read_settings,
)

if TYPE_CHECKING:
    from .result import Result
    from .setting import Setting

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure the engine on this machine, beside others."""


@app.command("best-of-n")
def best_of_n(
    n: Annotated[int, typer.Option("--n", min=1, help="Samples of one prompt.")] = 16,
    prompt: Annotated[
        int, typer.Option("--prompt", min=1, help="Prompt tokens; shortened to fit the context.")
    ] = 512,
    new: Annotated[int, typer.Option("--new", min=1, help="Tokens per sample.")] = 128,
    model: Models = None,
    dtype: Dtypes = None,
    peer: Peers = None,
    threads: Threads = None,
    repeats: Repeats = 3,
    deterministic: Deterministic = False,
    work: WorkFolder = None,
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    """Tokens per second when n samples continue one prompt."""
    from .best_of_n import BestOfN

    settings = read_settings(model, dtype, peer, threads, repeats, work, deterministic=deterministic)
    _run(BestOfN(samples=n, prompt=prompt, new=new).measure, settings, save, as_json=as_json)


def _run(
    measure: "Callable[[Setting], Awaitable[Result]]",
    settings: "Sequence[Setting]",
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    """Measure under each setting; print, and save what was measured as soon as it was."""
    from .arena import run_bench
    from .report import render, render_json, save

    results = []
    for setting in settings:
        result = run_bench(setting, measure)
        results.append(result)
        if folder is not None:
            save([result], folder)
        if not as_json:
            typer.echo(render(result))
    if as_json:
        typer.echo(render_json(results))
