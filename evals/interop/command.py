"""`branchwise export`: a run's records in the format of another harness."""

import enum
from typing import Annotated

import typer

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...reasoning.cli.options import Verbose

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Format(enum.StrEnum):
    """Harnesses whose format can be written."""

    INSPECT = "inspect"


@app.command()
def export(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The --out folder of a run.")],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Where the logs go.")],
    to: Annotated[
        Format, typer.Option("--to", help="inspect: .eval logs, one per strategy and budget.")
    ] = Format.INSPECT,
    verbose: Verbose = 0,
) -> None:
    """Export the records of a run to another harness, such as `inspect view`."""
    from ..runs.store import Store

    with Store.read(user_path(folder)) as store:
        for path in _writer(to)(store, user_path(out)):
            typer.echo(path)


def _writer(to: Format):
    match to:
        case Format.INSPECT:
            try:
                from .inspect_log import write_logs
            except ModuleNotFoundError as error:
                raise UsageError(
                    f"--to {to}: needs {error.name}; pip install 'branchwise[inspect]'"
                ) from error
            return write_logs
