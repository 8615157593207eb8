"""`branchwise serve`: the model behind an OpenAI-compatible endpoint. Cheap to import."""

from typing import Annotated

import anyio
import typer

from ..engine.errors import UsageError
from ..engine.user_path import user_path
from ..reasoning.cli.checks import (
    checked_opening,
    checked_speculate,
    checked_step,
    checked_strategy,
    checked_verifier,
)
from ..reasoning.cli.groups import takes_groups
from ..reasoning.cli.options import SEARCH, Speculation, Step, Verbose, Verifier, count
from ..reasoning.cli.quantity import parse_budget, parse_bytes
from ..reasoning.cli.requests import Opening

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

SERVER = "Server"
DEFAULT_STRATEGY = "best_of_n(n=16)"


@app.command()
@takes_groups
def serve(
    *,
    host: Annotated[
        str, typer.Option(metavar="H", help="The address to listen on.", rich_help_panel=SERVER)
    ] = "127.0.0.1",
    port: Annotated[
        int, count("--port", "The port; 0 takes any that is free.", least=0, most=65535, panel=SERVER)
    ] = 8000,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model's name to clients.", rich_help_panel=SERVER),
    ] = None,
    api_keys: Annotated[
        str | None,
        typer.Option(
            "--api-keys",
            metavar="FILE",
            help="TOML with a table keys.NAME for each key; without it any key is let in.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    running: Annotated[int, count("--running", "Requests that search at a time.", panel=SERVER)] = 64,
    waiting: Annotated[
        int, count("--waiting", "Requests in line for that; more are refused.", least=0, panel=SERVER)
    ] = 256,
    max_body: Annotated[
        str, typer.Option(metavar="SIZE", help="The largest request.", rich_help_panel=SERVER)
    ] = "1MiB",
    strategy: Annotated[
        str,
        typer.Option(metavar="S", help="What a request without a strategy gets.", rich_help_panel=SEARCH),
    ] = DEFAULT_STRATEGY,
    budget: Annotated[
        str,
        typer.Option(metavar="B", help="What a request without a budget gets.", rich_help_panel=SEARCH),
    ] = "tokens=4k",
    ceiling: Annotated[
        str,
        typer.Option(
            metavar="B", help="The most that a request may have; must limit tokens.", rich_help_panel=SEARCH
        ),
    ] = "tokens=64k,seconds=300",
    verifier: Verifier = None,
    step: Step = None,
    opening: Opening,
    speculate: Speculation = None,
    verbose: Verbose = 0,
) -> None:
    """Serve a model with any strategy, to clients of the OpenAI API."""
    try:
        import litestar
        import uvicorn
    except ModuleNotFoundError as error:
        raise UsageError(f"serve: needs {error.name}; pip install 'branchwise[serve]'") from error
    del litestar, uvicorn
    if not host.strip():  # sockets take it for every address of the machine
        raise UsageError("--host: it is empty; give an address, such as 127.0.0.1, or 0.0.0.0 for all")
    checked_opening(opening)
    # Behind these stand litestar, torch and transformers: what is refused above costs none of their seconds.
    from .keys import KeyRing, read_keys
    from .settings import Limits, Settings, checked_settings

    settings = Settings(
        name=name or "",
        strategy=checked_strategy(strategy, []),
        budget=parse_budget(budget),
        ceiling=parse_budget(ceiling),
        limits=Limits(running=running, waiting=waiting, body_bytes=parse_bytes(max_body)),
        keys=KeyRing() if api_keys is None else read_keys(user_path(api_keys)),
        verifier=checked_verifier(verifier),
        step=checked_step(step),
        speculate=checked_speculate(speculate),
    )
    checked_settings(settings)
    from .running import open_and_serve

    anyio.run(open_and_serve, opening, settings, host, port)


if __name__ == "__main__":
    app()
