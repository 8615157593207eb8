"""`branchwise bench`: measurements that anyone can repeat."""

from collections.abc import Awaitable, Callable, Collection, Iterable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from .options import MOST_TOKENS, AsJson, Repeats, Save, Threads, amount, checked_folder, read_settings

if TYPE_CHECKING:
    from .result import Result
    from .setting import Setting

_PROMPT = "Prompt tokens; shortened to fit the context."

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


class Workload(Protocol):
    """What a benchmark measures under a setting."""

    def measure(self, setting: "Setting") -> "Awaitable[Result]": ...


@app.callback()
def bench() -> None:
    """Measure the engine on this machine, beside others."""


def _measured(
    name: str, *, repeats: int = 3, without: Collection[str] = ()
) -> Callable[[Callable[..., Workload]], Callable[..., Workload]]:
    """Makes a command of a function from sizes to a workload: its options are the function's, then those of
    `read_settings` but the ones in `without`, then how to print."""

    def register(sized: Callable[..., Workload]) -> Callable[..., Workload]:
        sizes = signature(sized).parameters
        settings = [
            parameter.replace(default=repeats) if parameter.name == "repeats" else parameter
            for parameter in signature(read_settings).parameters.values()
            if parameter.name not in without
        ]

        def command(as_json: AsJson = False, save: Save = None, **given: Any) -> None:
            own = {name: given.pop(name) for name in sizes}
            chosen = read_settings(**given)
            # Behind these stands torch: whatever was refused above cost none of its seconds.
            measure = sized(**own).measure
            from .arena import run_bench

            _report((run_bench(setting, measure) for setting in chosen), save, as_json=as_json)

        printing = [p for p in signature(command).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        command.__doc__ = sized.__doc__
        command.__signature__ = Signature([*sizes.values(), *settings, *printing])  # pyright: ignore[reportFunctionMemberAccess]
        app.command(name)(command)
        return sized

    return register


@_measured("best-of-n")
def best_of_n(
    n: Annotated[int, amount("--n", "Samples of one prompt.")] = 16,
    prompt: Annotated[int, amount("--prompt", _PROMPT, most=MOST_TOKENS)] = 512,
    new: Annotated[int, amount("--new", "Tokens per sample.", most=MOST_TOKENS)] = 128,
) -> Workload:
    """Tokens per second when n samples continue one prompt."""
    from .best_of_n import BestOfN

    return BestOfN(samples=n, prompt=prompt, new=new)


@_measured("tree")
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
) -> Workload:
    """Seconds of a tree search whose steps are scored by a second model."""
    from .tree import Tree

    return Tree(beams=beams, children=children, steps=steps, new=new, prompt=prompt, prm=prm)


@_measured("serve")
def serve(
    requests: Annotated[int, amount("--requests", "Prompts at once.")] = 64,
    prompt: Annotated[int, amount("--prompt", "Tokens of the longest prompt.", most=MOST_TOKENS)] = 512,
    new: Annotated[int, amount("--new", "Tokens of the longest continuation.", most=MOST_TOKENS)] = 128,
) -> Workload:
    """Throughput and latencies of many prompts of mixed lengths, side by side."""
    from .serve import Serve

    return Serve(requests=requests, prompt=prompt, new=new)


@_measured("prefill")
def prefill(
    prompts: Annotated[int, amount("--prompts", "Different prompts at once.")] = 8,
    prompt: Annotated[int, amount("--prompt", _PROMPT, most=MOST_TOKENS)] = 1024,
) -> Workload:
    """Positions per second when prompts are read."""
    from .prefill import Prefill

    return Prefill(prompts=prompts, prompt=prompt)


@_measured("score")
def score(
    texts: Annotated[int, amount("--texts", "Continuations of one prompt.")] = 16,
    prompt: Annotated[int, amount("--prompt", _PROMPT, most=MOST_TOKENS)] = 512,
    scored: Annotated[int, amount("--scored", "Tokens of each continuation.", most=MOST_TOKENS)] = 64,
) -> Workload:
    """Scored positions per second, with and without a prompt that is read once."""
    from .score import Score

    return Score(texts=texts, prompt=prompt, scored=scored)


@_measured("speculate", repeats=9, without=("peer", "work"))
def speculate(
    drafts: Annotated[str, typer.Option("--speculate", help="What drafts.")] = "ngram(k=4)",
    new: Annotated[int, amount("--new", "Tokens per prompt.", most=MOST_TOKENS)] = 96,
    at_once: Annotated[int, amount("--at-once", "Prompts side by side.")] = 1,
) -> Workload:
    """What drafting saves on texts that repeat, and costs on others."""
    from .speculate import Speculation

    return Speculation(drafts=drafts, new=new, at_once=at_once)


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
def kv(
    problems: Annotated[int, amount("--problems", "Problems of each strategy.")] = 20,
    width: Annotated[int, amount("--width", "Width of each strategy.", most=4096)] = 16,
    threads: Threads = None,
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    """Peak KV of each tree strategy, with and without pruning."""
    from .kv import Kv
    from .machine import core_count

    bench = Kv(problems=problems, width=width, threads=threads or core_count())
    _report(map(bench.measure, bench.strategies()), save, as_json=as_json)


@app.command()
def plan(
    repeats: Repeats = 3,
    threads: Threads = None,
    cpu_time: Annotated[
        bool,
        typer.Option("--cpu-time", help="Count the processor's time, not the wall's; for one thread."),
    ] = False,
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    """Seconds that `branchwise plan` says for this machine, and those that the engine takes."""
    from ...engine.errors import UsageError
    from .machine import core_count

    threads = threads or (1 if cpu_time else core_count())
    if cpu_time and threads > 1:
        raise UsageError(f"--cpu-time with --threads {threads}: threads add up in it; give --threads 1")
    from .planned import Planned

    _report(Planned(repeats=repeats, threads=threads, cpu_time=cpu_time).measure(), save, as_json=as_json)


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
