"""`branchwise eval`: strategies at several budgets over a suite of problems."""

from typing import Annotated, Any

import typer

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...reasoning.cli.options import (
    ENGINE,
    RUN,
    Adapter,
    Device,
    Draft,
    Dtype,
    Judge,
    KvMemory,
    MaxModelLen,
    MaxTokens,
    Model,
    Oracle,
    Prm,
    Speculation,
    Step,
    System,
    Temperature,
    Think,
    Threads,
    Verbose,
    Verifier,
    whole,
)
from .options import Data, FieldMap, Limit, Out, Parallel, Resume, Seeds, SuiteSeed

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def evaluate(
    suite: Annotated[
        str | None, typer.Argument(metavar="SUITE", show_default=False, help="The problems, by name.")
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="S",
            help='May be repeated, and sweep: "best_of_n(n=4..64*2)", "best_of_n(n=4,16)".',
            rich_help_panel=RUN,
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="B", help="May be repeated: tokens=1024.", rich_help_panel=RUN),
    ] = None,
    seeds: Seeds[int | None] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            parser=whole("--seed", least=0), metavar="N", help="The first seed.", rich_help_panel=RUN
        ),
    ] = None,
    limit: Limit = None,
    suite_seed: SuiteSeed[int | None] = None,
    difficulty: Annotated[
        int | None,
        typer.Option(
            parser=whole("--difficulty", least=0, most=4096),
            metavar="N",
            help="Samples per problem, 16 or more, that only sort the problems by difficulty.",
            rich_help_panel=RUN,
        ),
    ] = None,
    data: Data = None,
    map: FieldMap = None,
    allow_unsandboxed: Annotated[
        bool | None,
        typer.Option(
            "--allow-unsandboxed",
            help="Run generated programs as yourself where there is no sandbox.",
            rich_help_panel=RUN,
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Recorded outputs in place of suite and model.", rich_help_panel=RUN
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of which filter, where lm-eval recorded several.", rich_help_panel=RUN
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="All of this from a TOML file.", rich_help_panel=RUN),
    ] = None,
    out: Out = "out",
    resume: Resume = False,
    parallel: Parallel = 8,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Spread problems over a Ray cluster: local, auto, ray://HOST:PORT.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    model: Model[str | None] = None,
    draft: Draft = None,
    prm: Prm = None,
    judge: Judge = None,
    adapter: Adapter = None,
    verifier: Verifier = None,
    oracle: Oracle[bool | None] = None,
    system: System = None,
    think: Think = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    step: Step = None,
    speculate: Speculation = None,
    device: Device = "auto",
    dtype: Dtype[str | None] = None,
    threads: Threads = None,
    kv_memory: KvMemory = None,
    max_model_len: MaxModelLen = None,
    verbose: Verbose = 0,
) -> None:
    """Compare strategies on a suite of problems, sample by sample into a folder that can be resumed."""
    import anyio

    from ...reasoning.cli.checks import checked_device, checked_source
    from ...reasoning.cli.quantity import parse_bytes
    from .arguments import recipe_from

    fields: dict[str, Any] = {
        "suite": suite,
        "strategies": strategy,
        "budgets": budget,
        "seeds": seeds,
        "seed": seed,
        "limit": limit,
        "suite_seed": suite_seed,
        "difficulty": difficulty,
        "data": data,
        "mapping": map,
        "allow_unsandboxed": allow_unsandboxed,
        "recording": replay,
        "filter": filter,
        "model": model,
        "draft": draft,
        "prm": prm,
        "judge": judge,
        "adapter": adapter,
        "dtype": dtype,
        "max_model_len": max_model_len,
        "verifier": verifier,
        "oracle": oracle,
        "system": system,
        "think": think,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "step": step,
        "speculate": speculate,
    }
    checked = recipe_from(fields, recipe)
    if checked.recording is None:
        for source in (checked.model, checked.draft, checked.prm, checked.judge):
            if source is not None:
                checked_source(source)
    elif ray is not None:
        raise UsageError(f"--ray {ray}: a replay runs no model; leave it out")
    checked_device(device)
    memory = None if kv_memory is None else parse_bytes(kv_memory)
    # Behind this stand torch and transformers: whatever was refused above cost none of their seconds.
    from .launch import Machine, launch

    machine = Machine(parallel=parallel, ray=ray, device=device, threads=threads, kv_memory=memory)

    if not out.strip():
        raise UsageError('--out "": names no folder; give one, such as --out out')
    folder = user_path(out)

    async def run() -> int:
        return await launch(checked, folder, machine, resume=resume)

    raise typer.Exit(anyio.run(run))
