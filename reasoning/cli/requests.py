"""The arguments of a run: what to open, what to ask for, how to print. The first two are options of every
command that solves (`groups.takes_groups`): a field is the one declaration of its option."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ...strategies.base import Strategy
from ..budget import Budget
from .options import (
    ENGINE,
    MODEL,
    SEARCH,
    KvMemory,
    MaxModelLen,
    MaxTokens,
    Speculation,
    Step,
    Threads,
    Verifier,
    number,
)


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword arguments of `Reasoner.open` that name models and the machine; `kv_memory` in bytes."""

    model: Annotated[
        str,
        typer.Option(
            metavar="M",
            help="A name of `branchwise models`, a folder, a .gguf file, a Hub id (owner/name), or a server "
            "(remote:URL#MODEL).",
            rich_help_panel=MODEL,
        ),
    ] = "reference"
    draft: Annotated[
        str | None,
        typer.Option(metavar="M", help="A smaller model of the same vocabulary.", rich_help_panel=MODEL),
    ] = None
    prm: Annotated[
        str | None, typer.Option(metavar="M", help="A process reward model.", rich_help_panel=MODEL)
    ] = None
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="A model for --verifier judge; else it is the policy.", rich_help_panel=MODEL
        ),
    ] = None
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A LoRA adapter of the model, a PEFT folder.", rich_help_panel=MODEL
        ),
    ] = None
    device: Annotated[
        str, typer.Option(metavar="D", help="auto, cpu, cuda, cuda:N.", rich_help_panel=ENGINE)
    ] = "auto"
    dtype: Annotated[
        str, typer.Option(metavar="T", help="auto, float32, bfloat16.", rich_help_panel=ENGINE)
    ] = "auto"
    threads: Threads = None
    kv_memory: KvMemory = None
    max_model_len: MaxModelLen = None


class Searching(msgspec.Struct, frozen=True, kw_only=True):
    """The keyword arguments of `Reasoner.solve` that are the same whatever strategy and budget."""

    verifier: Verifier = None
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="Allow a verifier that knows the answer.", rich_help_panel=SEARCH),
    ] = False
    step: Step = None
    max_tokens: MaxTokens = None
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The system message.", rich_help_panel=MODEL)
    ] = None
    think: Annotated[
        bool | None,
        typer.Option(
            "--think/--no-think", help="Ask the chat template for thinking, or not.", rich_help_panel=MODEL
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            parser=number("--temperature", least=0, most=100),
            metavar="X",
            help="0 is greedy; the model's own when not given.",
            rich_help_panel=MODEL,
        ),
    ] = None
    speculate: Speculation = None


class Asking(Searching, frozen=True, kw_only=True):
    """The keyword arguments of `Reasoner.solve` that all problems of a run share."""

    strategy: Strategy
    budget: Budget
    seed: int | None


class Printing(msgspec.Struct, frozen=True, kw_only=True):
    """`graph` is where the search graph goes; `jobs` how many problems of a file run at a time."""

    json: bool
    graph: Path | None
    jobs: int
