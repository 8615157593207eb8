"""`branchwise plan`: what a search would cost on a machine, without the machine."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ...engine.errors import UsageError
from ...reasoning.cli.options import (
    ENGINE,
    MODEL,
    RUN,
    JsonOut,
    KvMemory,
    MaxModelLen,
    MaxTokens,
    Step,
    Threads,
    Verbose,
    Verifier,
    count,
    number,
)

if TYPE_CHECKING:
    from ...engine.models.config import ModelConfig
    from ...strategies.base import Strategy
    from .machine import Machine

MACHINE = "Machine"
MOST_TOKENS = 1 << 20
_DTYPES = ("bfloat16", "float32")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Where(NamedTuple):
    """The options that say what computes."""

    gpu: str | None
    file: str | None
    measure: bool
    memory: str | None
    dtype: str | None
    threads: int | None


@app.command()
def plan(
    model_config: Annotated[
        str,
        typer.Option(metavar="FILE", help="config.json of the model, or its folder.", rich_help_panel=MODEL),
    ],
    prm_config: Annotated[
        str | None, typer.Option(metavar="FILE", help="The same of a step scorer.", rich_help_panel=MODEL)
    ] = None,
    draft_config: Annotated[
        str | None, typer.Option(metavar="FILE", help="The same of a draft model.", rich_help_panel=MODEL)
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="H200, H100, A100, L40S or B200.", rich_help_panel=MACHINE),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A machine described in JSON; see docs/production.md.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="This machine's CPU, measured now.", rich_help_panel=MACHINE)
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of the measured machine.",
            show_default="8GiB",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    save_machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the machine as --machine reads it.", rich_help_panel=MACHINE
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="S", help="name(k=v, ...).", rich_help_panel=RUN)
    ] = "best_of_n(n=16)",
    budget: Annotated[
        str, typer.Option(metavar="B", help="Of each problem.", rich_help_panel=RUN)
    ] = "tokens=16384",
    problems: Annotated[
        int, count("--problems", "Problems that are there at once.", most=4096, panel=RUN)
    ] = 1,
    prompt_tokens: Annotated[
        int, count("--prompt-tokens", "Length of each prompt.", most=MOST_TOKENS, panel=RUN)
    ] = 512,
    answer_tokens: Annotated[
        int | None,
        count(
            "--answer-tokens",
            "Mean length of a solution.",
            least=2,
            most=MOST_TOKENS,
            show_default="as the budget allows",
            panel=RUN,
        ),
    ] = None,
    spread: Annotated[
        float,
        typer.Option(
            parser=number("--spread", least=0, most=1),
            metavar="X",
            help="How far lengths lie from the mean at most, as a share of it.",
            rich_help_panel=RUN,
        ),
    ] = 0.5,
    agree: Annotated[
        float,
        typer.Option(
            parser=number("--agree", least=0, most=1),
            metavar="X",
            help="Share of solutions with the same answer.",
            rich_help_panel=RUN,
        ),
    ] = 0.0,
    seed: Annotated[int, count("--seed", least=0, panel=RUN)] = 0,
    verifier: Verifier = None,
    step: Step = None,
    max_tokens: MaxTokens = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="float32 or bfloat16.",
            show_default="the machine's; float32 when measured",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    threads: Threads = None,
    kv_memory: KvMemory = None,
    max_model_len: MaxModelLen = None,
    max_step_tokens: Annotated[
        int, count("--max-step-tokens", "Rows of a step at most.", most=65536, panel=ENGINE)
    ] = 2048,
    as_json: JsonOut = False,
    verbose: Verbose = 0,
) -> None:
    """Predict KV, tokens per second and time of a strategy on a machine that need not be there.

    The real strategy and scheduler run on a simulated clock; each step takes as long as its bytes and
    operations take at the machine's rates, and no token is computed.
    """
    from ...reasoning.cli.checks import checked_step, checked_strategy, checked_verifier
    from ...reasoning.cli.quantity import parse_budget

    where = _Where(gpu, machine, measure, memory, dtype, threads)
    _check_where(where)
    _check_roles(checked_strategy(strategy, ()), prm=prm_config, draft=draft_config, verifier=verifier)
    limits = parse_budget(budget)
    # Behind these stands torch: whatever was refused above cost none of its seconds.
    from .machine import ELEMENT_BYTES
    from .oracle import Writing
    from .plan import Serving, Workload, make_plan

    workload = Workload(
        strategy=strategy,
        budget=limits,
        problems=problems,
        prompt_tokens=prompt_tokens,
        writing=Writing(answer_tokens=answer_tokens, spread=spread, agree=agree),
        step=checked_step(step) or _step_of(prm_config),
        max_tokens=max_tokens,
        verifier=checked_verifier(verifier),
        seed=seed,
    )
    configs = _configs({"policy": model_config, "prm": prm_config, "draft": draft_config})
    found = _machine(where, configs["policy"])
    if save_machine is not None:
        _save(found, save_machine)
    made = make_plan(
        Serving(
            configs=configs,
            machine=found,
            element_bytes=ELEMENT_BYTES[dtype or found.dtype],
            block_size=16 if measure else 32,
            max_step_tokens=max_step_tokens,
            max_model_len=max_model_len,
            kv_memory=kv_memory,
        ),
        workload,
    )
    from .report import as_document, as_text

    typer.echo(as_document(made, workload) if as_json else as_text(made, workload))


def _step_of(prm_config: str | None) -> str | None:
    """Steps of a plan's texts have no mark: where a scorer reads them they are cut by count."""
    return None if prm_config is None else "tokens:64"


def _check_where(where: _Where) -> None:
    """One machine, and no option that says nothing of it. `UsageError` in one line."""
    given = [
        name
        for name, value in (("--gpu", where.gpu), ("--machine", where.file), ("--measure", where.measure))
        if value
    ]
    if len(given) != 1:
        raise UsageError(
            f"{' with '.join(given) or 'no machine'}: give one of --gpu NAME, --machine FILE and --measure"
        )
    if where.dtype not in (None, *_DTYPES):
        raise UsageError(f"--dtype {where.dtype}: no such type; give {' or '.join(_DTYPES)}")
    if not where.measure and (where.threads is not None or where.memory is not None):
        option = "--threads" if where.threads is not None else "--memory"
        raise UsageError(f"{option} without --measure: it is an option of the measurement")


def _check_roles(strategy: "Strategy", *, prm: str | None, draft: str | None, verifier: str | None) -> None:
    """Refuse a strategy whose models are not described."""
    needs, name = strategy.requirements(), type(strategy).__struct_config__.tag
    scores = needs.step_scores or (needs.scores and verifier is None)
    for role, path, needed in (
        ("prm", prm, scores or "prm" in needs.models),
        ("draft", draft, "draft" in needs.models),
    ):
        if needed and path is None:
            raise UsageError(f"strategy {name} needs the model {role!r}: give --{role}-config")


def _configs(paths: dict[str, str | None]) -> "dict[str, ModelConfig]":
    """The models by role. `UsageError` for one that cannot play its role."""
    from .oracle import read_config

    configs = {}
    for role, path in paths.items():
        if path is None:
            continue
        option = "--model-config" if role == "policy" else f"--{role}-config"
        config = configs[role] = read_config(path, option)
        if (config.head.labels > 0) != (role == "prm"):
            has = "a reward head" if config.head.labels else "no reward head"
            raise UsageError(f"{option} {path}: {config.architecture} has {has}; give another model")
    return configs


def _machine(where: _Where, config: "ModelConfig") -> "Machine":
    from ...reasoning.cli.quantity import parse_bytes
    from .gpus import find_gpu
    from .machine import read_machine

    if where.gpu is not None:
        return find_gpu(where.gpu)
    if where.file is not None:
        return read_machine(where.file)
    from ..bench.arena import torch_threads
    from ..bench.machine import core_count
    from .measure import measure_machine

    with torch_threads(where.threads or core_count()):
        size = parse_bytes(where.memory or "8GiB")
        return measure_machine(config, dtype=where.dtype or "float32", memory_bytes=size)


def _save(machine: "Machine", path: str) -> None:
    from ...engine.user_path import user_path
    from .machine import write_machine

    write_machine(machine, user_path(path))
