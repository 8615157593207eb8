"""The commands together: one line and an exit status for whatever goes wrong."""

import contextlib
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from ...engine.errors import BranchwiseError
from .commands import CommandGroup
from .logs import configure_logs
from .models import models
from .options import Verbose
from .session import Session
from .solve import solve
from .strategies import strategies
from .verifiers import verifiers

BROKEN_PIPE = 141
ABORTED = 130
LINE_MAX = 600
"""Characters of the longest error line."""

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (solve, models, strategies, verifiers):
    app.command()(command)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    verbose: Verbose = 0,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Spend more computation on one problem, and know what it bought."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"branchwise {version_of('branchwise')}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    session = Session()
    configure_logs(0)
    try:
        _invoke(list(arguments), session)
        sys.stdout.flush()
        return 0
    except typer.Exit as exit:
        return exit.exit_code
    except BrokenPipeError:
        return BROKEN_PIPE
    except typer.Abort:
        return ABORTED
    except typer.TyperException as error:
        return _fail(error, error.format_message(), error.exit_code, session)
    except BranchwiseError as error:
        return _fail(error, str(error), error.exit_status, session)
    except Exception as error:
        message = f"{type(error).__name__}: {error}; -v shows where"
        return _fail(error, message, BranchwiseError.exit_status, session)


def _invoke(arguments: list[str], session: Session) -> None:
    # Not through the command's own `main`: it prints usage errors as a box and swallows closed pipes.
    command = get_command(app)
    with command.make_context("branchwise", arguments, obj=session) as ctx:
        command.invoke(ctx)


def _fail(error: Exception, message: str, status: int, session: Session) -> int:
    with contextlib.suppress(OSError):  # nobody reads stderr: the status still tells
        if session.verbosity:
            traceback.print_exception(error)
        # Help that was asked for by leaving everything out is printed by now, and comes without a message.
        if message:
            print(f"branchwise: {_one_line(message)}", file=sys.stderr)
    return status


def _one_line(message: str) -> str:
    """`message` on one line of readable length, what a terminal would obey instead of showing it escaped."""
    text = " ".join(message.split())
    if len(text) > LINE_MAX:
        half = LINE_MAX // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
