"""`branchwise calibrate`: fit the table that the strategy `adaptive` chooses by."""

from typing import Annotated, Any

import typer

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...reasoning.cli.options import (
    RUN,
    Device,
    Draft,
    Dtype,
    KvMemory,
    MaxModelLen,
    MaxTokens,
    Model,
    Prm,
    Threads,
    Verbose,
    Verifier,
    whole,
)
from ...strategies.adaptive import asks_a_table
from ...strategies.grammar import parse_strategy
from ..runs.options import Data, FieldMap, Limit, Out, Parallel, Resume, Seeds, SuiteSeed

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def calibrate(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="The problems, by name.")],
    strategy: Annotated[
        list[str],
        typer.Option(metavar="S", help="What may be chosen; repeated, or a sweep.", rich_help_panel=RUN),
    ],
    budget: Annotated[
        list[str], typer.Option(metavar="B", help="tokens=1024; may be repeated.", rich_help_panel=RUN)
    ],
    table: Annotated[
        str, typer.Option(metavar="FILE", help="The table to write, or to add to.", rich_help_panel=RUN)
    ],
    out: Out = "calibration",
    resume: Resume = False,
    probe: Annotated[
        int,
        typer.Option(
            parser=whole("--probe", least=1, most=64),
            metavar="N",
            help="Samples that show the difficulty.",
            rich_help_panel=RUN,
        ),
    ] = 4,
    bins: Annotated[
        int,
        typer.Option(
            parser=whole("--bins", least=1, most=16),
            metavar="N",
            help="Bins of difficulty, at most.",
            rich_help_panel=RUN,
        ),
    ] = 3,
    seeds: Seeds[int] = 1,
    limit: Limit = None,
    suite_seed: SuiteSeed[int] = 1,
    data: Data = None,
    map: FieldMap = None,
    parallel: Parallel = 8,
    model: Model[str] = "reference",
    draft: Draft = None,
    prm: Prm = None,
    verifier: Verifier = None,
    max_tokens: MaxTokens = None,
    device: Device = "auto",
    dtype: Dtype[str] = "auto",
    threads: Threads = None,
    kv_memory: KvMemory = None,
    max_model_len: MaxModelLen = None,
    verbose: Verbose = 0,
) -> None:
    """Run strategies alone and behind a probe, and fit which of them `adaptive` is to choose."""
    import anyio

    from ...reasoning.cli.checks import checked_device, checked_source
    from ...reasoning.cli.quantity import parse_budget, parse_bytes
    from ..runs.arguments import recipe_from
    from ..runs.sweep import expand_strategies
    from .table import table_path, write_table

    for text in budget:
        if parse_budget(text).tokens is None:
            raise UsageError(f"--budget {text}: a table is fitted by tokens; give tokens=N")
    fields: dict[str, Any] = {
        "suite": suite,
        "strategies": arms(expand_strategies(strategy), probe),
        "budgets": budget,
        "seeds": seeds,
        "limit": limit,
        "suite_seed": suite_seed,
        "data": data,
        "mapping": map,
        "model": model,
        "draft": draft,
        "prm": prm,
        "dtype": dtype,
        "max_model_len": max_model_len,
        "verifier": verifier,
        "max_tokens": max_tokens,
    }
    recipe = recipe_from(fields, None)
    for source in (recipe.model, recipe.draft, recipe.prm):
        if source is not None:
            checked_source(source)
    checked_device(device)
    memory = None if kv_memory is None else parse_bytes(kv_memory)
    target = table_path(table)
    from ..runs.launch import Machine, launch
    from ..runs.store import Store

    machine = Machine(parallel=parallel, device=device, threads=threads, kv_memory=memory)
    folder = user_path(out)

    async def run() -> int:
        return await launch(recipe, folder, machine, resume=resume)

    status = anyio.run(run)
    if status == 0:
        with Store.read(folder) as store:
            for line in write_table(store, target, bins=bins):
                typer.echo(line)
    raise typer.Exit(status)


def arms(strategies: tuple[str, ...], probe: int) -> list[str]:
    """Each strategy alone, and behind a probe. Raises `UsageError` for one that would choose by a table."""
    for text in strategies:
        if asks_a_table(parse_strategy(text)):
            raise UsageError(f"--strategy {text}: it chooses by a table itself; give what may be chosen")
    return [f"adaptive(probe={count}, arm={text})" for text in strategies for count in (0, probe)]
