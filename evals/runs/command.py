"""`branchwise eval`: strategies at several budgets over a suite of problems."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ...engine.errors import UsageError
from ...reasoning.cli.options import Verbose, number, whole

_RUN, _MODEL, _ENGINE = "Run", "Model", "Engine"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Out = Annotated[
    str, typer.Option("--out", metavar="DIR", help="Where records and summary go.", rich_help_panel=_RUN)
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with the run that is in --out.", rich_help_panel=_RUN),
]


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
            rich_help_panel=_RUN,
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="B", help="May be repeated: tokens=1024.", rich_help_panel=_RUN),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            parser=whole("--seeds", least=1, most=10_000),
            metavar="N",
            help="Times that each problem is solved.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            parser=whole("--seed", least=0), metavar="N", help="The first seed.", rich_help_panel=_RUN
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            parser=whole("--limit", least=1), metavar="N", help="Problems, at most.", rich_help_panel=_RUN
        ),
    ] = None,
    suite_seed: Annotated[
        int | None,
        typer.Option(
            parser=whole("--suite-seed", least=0),
            metavar="N",
            help="Draws the problems.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    difficulty: Annotated[
        int | None,
        typer.Option(
            parser=whole("--difficulty", least=0, most=4096),
            metavar="N",
            help="Samples per problem, 16 or more, that only sort the problems by difficulty.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Where the suite's files lie.", rich_help_panel=_RUN),
    ] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=KEY", help="Which key of a JSONL file holds what.", rich_help_panel=_RUN),
    ] = None,
    allow_unsandboxed: Annotated[
        bool | None,
        typer.Option(
            "--allow-unsandboxed",
            help="Run generated programs as yourself where there is no sandbox.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Recorded outputs in place of suite and model.", rich_help_panel=_RUN
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="All of this from a TOML file.", rich_help_panel=_RUN),
    ] = None,
    out: Out = "out",
    resume: Resume = False,
    parallel: Annotated[
        int,
        typer.Option(
            parser=whole("--parallel", least=1, most=4096),
            metavar="N",
            help="Problems in the engine at a time.",
            rich_help_panel=_RUN,
        ),
    ] = 8,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Spread problems over a Ray cluster: local, auto, ray://HOST:PORT.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="reference, a folder, a .gguf file, or a Hub id.", rich_help_panel=_MODEL
        ),
    ] = None,
    draft: Annotated[
        str | None, typer.Option(metavar="M", help="A draft model.", rich_help_panel=_MODEL)
    ] = None,
    prm: Annotated[
        str | None, typer.Option(metavar="M", help="A process reward model.", rich_help_panel=_MODEL)
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(metavar="DIR", help="A LoRA adapter.", rich_help_panel=_MODEL)
    ] = None,
    verifier: Annotated[
        str | None, typer.Option(metavar="V", help="See `branchwise verifiers`.", rich_help_panel=_MODEL)
    ] = None,
    oracle: Annotated[
        bool | None,
        typer.Option("--oracle", help="Allow a verifier that knows the answer.", rich_help_panel=_MODEL),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The system message.", rich_help_panel=_MODEL)
    ] = None,
    think: Annotated[
        bool | None, typer.Option("--think/--no-think", help="Ask for thinking.", rich_help_panel=_MODEL)
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            parser=number("--temperature", least=0, most=100),
            metavar="X",
            help="Of samples; the model's own when not given.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            parser=whole("--max-tokens", least=1),
            metavar="N",
            help="Longest candidate.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="mark:TEXT|tokens:N", help="What ends a step.", rich_help_panel=_MODEL),
    ] = None,
    speculate: Annotated[
        str | None, typer.Option(metavar="ngram(k=4)", help="Another speed.", rich_help_panel=_ENGINE)
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="D", help="auto, cpu, cuda, cuda:N.", rich_help_panel=_ENGINE)
    ] = "auto",
    dtype: Annotated[
        str | None, typer.Option(metavar="T", help="auto, float32, bfloat16.", rich_help_panel=_ENGINE)
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            parser=whole("--threads", least=1, most=1024),
            metavar="N",
            help="CPU threads.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    kv_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for KV, such as 2GiB.", rich_help_panel=_ENGINE)
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            parser=whole("--max-model-len", least=1),
            metavar="N",
            help="Longest sequence.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
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
        "model": model,
        "draft": draft,
        "prm": prm,
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
        checked_source(checked.model)
    elif ray is not None:
        raise UsageError(f"--ray {ray}: a replay runs no model; leave it out")
    checked_device(device)
    memory = None if kv_memory is None else parse_bytes(kv_memory)
    # Behind this stand torch and transformers: whatever was refused above cost none of their seconds.
    from .launch import Machine, launch

    machine = Machine(parallel=parallel, ray=ray, device=device, threads=threads, kv_memory=memory)

    folder = Path(out).expanduser()

    async def run() -> int:
        return await launch(checked, folder, machine, resume=resume)

    raise typer.Exit(anyio.run(run))
