"""`branchwise bench`: measurements that anyone can repeat."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    MOST_TOKENS,
    AsJson,
    Deterministic,
    Dtypes,
    Models,
    Peers,
    Repeats,
    Save,
    Threads,
    WorkFolder,
    amount,
    checked_folder,
    read_settings,
)

if TYPE_CHECKING:
    from .result import Result
    from .setting import Setting

_PROMPT = "Prompt tokens; shortened to fit the context."

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure the engine on this machine, beside others."""


@app.command("best-of-n")
def best_of_n(
    n: Annotated[int, amount("--n", "Samples of one prompt.")] = 16,
    prompt: Annotated[int, amount("--prompt", _PROMPT, most=MOST_TOKENS)] = 512,
    new: Annotated[int, amount("--new", "Tokens per sample.", most=MOST_TOKENS)] = 128,
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


@app.command()
def tree(
    beams: Annotated[int, amount("--beams", "Paths that go on after each step.")] = 16,
    children: Annotated[int, amount("--children", "Forks of each.")] = 4,
    steps: Annotated[int, amount("--steps", "Steps.", most=MOST_TOKENS)] = 8,
    new: Annotated[int, amount("--new", "Tokens per step.", most=MOST_TOKENS)] = 32,
    prompt: Annotated[int, amount("--prompt", _PROMPT, most=MOST_TOKENS)] = 256,
    prm: Annotated[
        str | None,
        typer.Option("--prm", help="The scorer.", show_default="the policy's size, random weights"),
    ] = None,
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
    """Seconds of a tree search whose steps are scored by a second model."""
    from .tree import Tree

    settings = read_settings(model, dtype, peer, threads, repeats, work, deterministic=deterministic)
    workload = Tree(beams=beams, children=children, steps=steps, new=new, prompt=prompt, prm=prm)
    _run(workload.measure, settings, save, as_json=as_json)


@app.command()
def serve(
    requests: Annotated[int, amount("--requests", "Prompts at once.")] = 64,
    prompt: Annotated[int, amount("--prompt", "Tokens of the longest prompt.", most=MOST_TOKENS)] = 512,
    new: Annotated[int, amount("--new", "Tokens of the longest continuation.", most=MOST_TOKENS)] = 128,
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
    """Throughput and latencies of many prompts of mixed lengths, side by side."""
    from .serve import Serve

    settings = read_settings(model, dtype, peer, threads, repeats, work, deterministic=deterministic)
    _run(Serve(requests=requests, prompt=prompt, new=new).measure, settings, save, as_json=as_json)


@app.command()
def prefill(
    prompts: Annotated[int, amount("--prompts", "Different prompts at once.")] = 8,
    prompt: Annotated[int, amount("--prompt", _PROMPT, most=MOST_TOKENS)] = 1024,
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
    """Positions per second when prompts are read."""
    from .prefill import Prefill

    settings = read_settings(model, dtype, peer, threads, repeats, work, deterministic=deterministic)
    _run(Prefill(prompts=prompts, prompt=prompt).measure, settings, save, as_json=as_json)


@app.command()
def score(
    texts: Annotated[int, amount("--texts", "Continuations of one prompt.")] = 16,
    prompt: Annotated[int, amount("--prompt", _PROMPT, most=MOST_TOKENS)] = 512,
    scored: Annotated[int, amount("--scored", "Tokens of each continuation.", most=MOST_TOKENS)] = 64,
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
    """Scored positions per second, with and without a prompt that is read once."""
    from .score import Score

    settings = read_settings(model, dtype, peer, threads, repeats, work, deterministic=deterministic)
    _run(Score(texts=texts, prompt=prompt, scored=scored).measure, settings, save, as_json=as_json)


@app.command()
def speculate(
    drafts: Annotated[str, typer.Option("--speculate", help="What drafts.")] = "ngram(k=4)",
    new: Annotated[int, amount("--new", "Tokens per prompt.", most=MOST_TOKENS)] = 96,
    at_once: Annotated[int, amount("--at-once", "Prompts side by side.")] = 1,
    model: Models = None,
    dtype: Dtypes = None,
    threads: Threads = None,
    repeats: Repeats = 9,
    deterministic: Deterministic = False,
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    """What drafting saves on texts that repeat, and costs on others."""
    from .speculate import Speculation

    settings = read_settings(model, dtype, None, threads, repeats, None, deterministic=deterministic)
    _run(Speculation(drafts=drafts, new=new, at_once=at_once).measure, settings, save, as_json=as_json)


@app.command()
def overhead(
    rows: Annotated[
        list[int] | None,
        amount("--rows", "Branches; may be repeated.", show_default="64 and 256"),
    ] = None,
    steps: Annotated[int, amount("--steps", "Steps that count.", most=MOST_TOKENS)] = 1000,
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    """Milliseconds per step around a model that takes no time."""
    from .overhead import Overhead

    _report((Overhead(rows=each, steps=steps).measure() for each in rows or (64, 256)), save, as_json=as_json)


@app.command()
def table(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of rows.", show_default="the package's")
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="Put the table between its markers in this file.")
    ] = None,
) -> None:
    """The saved rows as Markdown, the latest of each benchmark."""
    from .store import RESULTS, read_rows
    from .table import put_table, render_table

    rendered = render_table(read_rows(folder or RESULTS))
    if into is None:
        typer.echo(rendered)
    else:
        put_table(rendered, into)


def _run(
    measure: "Callable[[Setting], Awaitable[Result]]",
    settings: "Sequence[Setting]",
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    """Measure under each setting."""
    from .arena import run_bench

    _report((run_bench(setting, measure) for setting in settings), folder, as_json=as_json)


def _report(found: "Iterable[Result]", folder: Path | None, *, as_json: bool) -> None:
    """Print, and save what was measured as soon as it was; what stops it takes nothing of that away."""
    from .report import render, render_json
    from .store import save

    folder = folder and checked_folder("--save", folder)
    results = []
    try:
        for result in found:
            results.append(result)
            if not as_json:
                typer.echo(render(result))
            if folder is not None:
                save(result, folder)
    finally:
        if as_json and results:
            typer.echo(render_json(results))
