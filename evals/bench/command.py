"""`branchwise bench`: measurements that anyone can repeat."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure the engine on this machine, beside others."""


@app.command("best-of-n")
def best_of_n(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model to measure; may be repeated.", show_default="reference"),
    ] = None,
    peer: Annotated[str | None, typer.Option("--peer", help="Measure beside this: transformers.")] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", help="float32 or bfloat16; may be repeated.", show_default="float32"),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Samples of one prompt.")] = 16,
    prompt: Annotated[
        int, typer.Option("--prompt", min=1, help="Prompt tokens; shortened to fit the context.")
    ] = 512,
    new: Annotated[int, typer.Option("--new", min=1, help="Tokens per sample.")] = 128,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Torch threads.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each; the median counts.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Tokens per second when n samples continue one prompt."""
    from ...engine.errors import UsageError
    from .best_of_n import PEERS, Workload, measure
    from .report import render_json, render_line

    if peer is not None and peer not in PEERS:
        raise UsageError(f"peer {peer!r} is not known; known is {', '.join(PEERS)}")
    workload = Workload(samples=n, prompt_tokens=prompt, new_tokens=new, repeats=repeats)
    results = []
    for name in model or ["reference"]:
        for kind in dtype or ["float32"]:
            result = measure(name, kind, workload, peer, threads)
            results.append(result)
            if not as_json:
                typer.echo(render_line(result))
    if as_json:
        typer.echo(render_json(results))
