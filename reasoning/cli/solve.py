"""`branchwise solve`: one problem, or many, within a budget."""

from typing import Annotated

import anyio
import typer

from ...engine.errors import UsageError
from .batch import Line, read_lines
from .checks import (
    check_readable,
    checked_device,
    checked_dtype,
    checked_source,
    checked_speculate,
    checked_step,
    checked_strategy,
    checked_verifier,
)
from .options import JsonOut, Model, Verbose, number, whole
from .output import graph_path
from .quantity import DEFAULT_BUDGET, parse_budget, parse_bytes
from .requests import Asking, Opening, Printing

DEFAULT_STRATEGY = "best_of_n(n=16)"
_MODEL, _SEARCH, _ENGINE = "Model", "Search", "Engine"


def solve(
    problem: Annotated[
        str | None, typer.Argument(metavar="PROBLEM", show_default=False, help="The text.")
    ] = None,
    input: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="Many problems, a line each, as text or JSON with problem and id; JSON lines out.",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="S", help="name(k=v, ...): see `branchwise strategies`.", rich_help_panel=_SEARCH
        ),
    ] = DEFAULT_STRATEGY,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Set a parameter of the strategy.", rich_help_panel=_SEARCH),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="B",
            help="Hard limits: tokens, flops, seconds, kv_tokens, answer_reserve.",
            rich_help_panel=_SEARCH,
        ),
    ] = DEFAULT_BUDGET,
    verifier: Annotated[
        str | None, typer.Option(metavar="V", help="See `branchwise verifiers`.", rich_help_panel=_SEARCH)
    ] = None,
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="Allow a verifier that knows the answer.", rich_help_panel=_SEARCH),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            parser=whole("--seed", least=0),
            metavar="N",
            help="Same seed, same result; drawn when not given.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="mark:TEXT|tokens:N", help="What ends a step.", rich_help_panel=_SEARCH),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            parser=whole("--max-tokens", least=1),
            metavar="N",
            help="Longest candidate, in tokens.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    model: Model = "reference",
    draft: Annotated[
        str | None,
        typer.Option(metavar="M", help="A smaller model of the same vocabulary.", rich_help_panel=_MODEL),
    ] = None,
    prm: Annotated[
        str | None, typer.Option(metavar="M", help="A process reward model.", rich_help_panel=_MODEL)
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A LoRA adapter of the model, a PEFT folder.", rich_help_panel=_MODEL
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The system message.", rich_help_panel=_MODEL)
    ] = None,
    think: Annotated[
        bool | None,
        typer.Option(
            "--think/--no-think", help="Ask the chat template for thinking, or not.", rich_help_panel=_MODEL
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            parser=number("--temperature", least=0, most=100),
            metavar="X",
            help="0 is greedy; the model's own when not given.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="D", help="auto, cpu, cuda, cuda:N.", rich_help_panel=_ENGINE)
    ] = "auto",
    dtype: Annotated[
        str, typer.Option(metavar="T", help="auto, float32, bfloat16.", rich_help_panel=_ENGINE)
    ] = "auto",
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
            help="Longest sequence, in tokens.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    speculate: Annotated[
        str | None,
        typer.Option(
            metavar="ngram(k=4)|suffix(k=8)|draft(k=4)",
            help="Verify guessed tokens together: another speed, the same result. width=2 follows a second "
            "guess (suffix, draft); verify=ratio keeps more of a draft model's guesses, for another result.",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            parser=whole("--jobs", least=1),
            metavar="N",
            help="Problems of --input solved at a time.",
            rich_help_panel=_ENGINE,
        ),
    ] = 32,
    graph: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the search graph: .json, .graphml or .mmd.")
    ] = None,
    json: JsonOut = False,
    verbose: Verbose = 0,
) -> None:
    """Solve a problem by search, within a hard budget."""
    printing = Printing(json=json, graph=None if graph is None else graph_path(graph), jobs=jobs)
    lines = _lines(problem, input, graph)
    asking = Asking(
        strategy=checked_strategy(strategy, set or []),
        budget=parse_budget(budget),
        verifier=checked_verifier(verifier),
        oracle=oracle,
        seed=seed,
        system=system,
        think=think,
        temperature=temperature,
        max_tokens=max_tokens,
        step=checked_step(step),
        speculate=checked_speculate(speculate),
    )
    opening = Opening(
        model=checked_source(model),
        draft=draft and checked_source(draft),
        prm=prm and checked_source(prm),
        adapter=adapter,
        device=checked_device(device),
        dtype=checked_dtype(dtype),
        threads=threads,
        kv_memory=None if kv_memory is None else parse_bytes(kv_memory),
        max_model_len=max_model_len,
    )
    if input is None:
        check_readable(lines[0].text, model)
    # Behind this stand torch and transformers: whatever was refused above cost none of their seconds.
    from .runs import run_many, run_one

    if input is None:
        status = anyio.run(run_one, lines[0].text, opening, asking, printing)
    else:
        status = anyio.run(run_many, lines, opening, asking, printing)
    raise typer.Exit(status)


def _lines(problem: str | None, input: str | None, graph: str | None) -> list[Line]:
    if input is not None:
        if problem is not None:
            raise UsageError(f"--input {input}: given together with a problem; give one of the two")
        if graph is not None:
            raise UsageError(
                f"--graph {graph}: goes with one problem, not with --input; leave one of the two out"
            )
        return read_lines(input)
    if problem is None:
        raise UsageError('no problem given: write branchwise solve "PROBLEM", or --input FILE (- for stdin)')
    if not problem.strip():
        raise UsageError(
            f'problem {problem!r} is empty: write it as text, such as "Use 3, 7 and 12 to make 43"'
        )
    return [Line(number=1, text=problem)]
